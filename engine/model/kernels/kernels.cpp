// What a step does on a CPU: between its matrix products, in attention over the paged KV pool, and,
// where the layers are of the common shape, in all of them. Each is one pass over memory where
// torch's own operators need several and a temporary for each.
//
// Arithmetic is in float32.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "attention.h"
#include "elementwise.h"
#include "lanes.h"
#include "layers.h"
#include "matmul.h"
#include "step_attention.h"
#include "team.h"
#include "tensors.h"

namespace {

using namespace phasescope;

// Waking a thread costs some ten microseconds: about this many numbers of one pass are worth one,
// and as many as the second of attention's keys.
constexpr int64_t kGrain = 32768;
constexpr int64_t kContextGrain = 98304;

template <typename T>
Rows<T> rows_of(const T* data, int64_t size, int64_t width) {
  return {const_cast<T*>(data), size / width, width};
}

// x [..., size], weight [size] -> the same shape.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check(x, "x");
  check(weight, "weight");
  const int64_t size = weight.numel(), rows = x.numel() / size;
  at::Tensor out = at::empty_like(x);
  with_type(x, [&](auto kind) {
    using T = decltype(kind);
    const T* in = x.const_data_ptr<T>();
    const T* w = weight.const_data_ptr<T>();
    T* result = out.mutable_data_ptr<T>();
    at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / size), [&](int64_t a, int64_t b) {
      for (int64_t row = a; row < b; ++row)
        normalise(in + row * size, w, result + row * size, size, static_cast<float>(eps));
    });
  });
  return out;
}

// gate_up [..., 2 * size] -> silu(first half) * second half [..., size].
at::Tensor silu_mul(const at::Tensor& gate_up) {
  check(gate_up, "gate_up");
  const int64_t size = gate_up.size(-1) / 2, rows = gate_up.numel() / (2 * size);
  std::vector<int64_t> shape = gate_up.sizes().vec();
  shape.back() = size;
  at::Tensor out = at::empty(shape, gate_up.options());
  with_type(gate_up, [&](auto kind) {
    using T = decltype(kind);
    const T* in = gate_up.const_data_ptr<T>();
    T* result = out.mutable_data_ptr<T>();
    at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / size), [&](int64_t a, int64_t b) {
      for (int64_t row = a; row < b; ++row) {
        const T* gate = in + row * 2 * size;
        const T* up = gate + size;
        for_each_lanes<T>(size, [&](auto read, auto write) {
          write(gated<T>(read(gate), read(up)), result + row * size);
        });
      }
    });
  });
  return out;
}

// Splits qkv [tokens, (heads + 2 * kv_heads) * dim] into heads, normalises queries and keys where
// weights are given, turns them by cosine and sine [tokens, dim], and stores keys and values at
// `places` [tokens] of the pool [num_places, kv_heads, dim]. Returns queries [tokens, heads, dim].
at::Tensor rotate_and_store(const at::Tensor& qkv, const at::Tensor& cosine,
                            const at::Tensor& sine, const at::Tensor& places, at::Tensor& keys,
                            at::Tensor& values, const std::optional<at::Tensor>& query_weight,
                            const std::optional<at::Tensor>& key_weight, double eps) {
  check(qkv, "qkv");
  check(cosine, "cosine");
  check(sine, "sine");
  check(places, "places");
  check(keys, "keys");
  check(values, "values");
  const int64_t tokens = places.numel(), kv_heads = keys.size(1), dim = keys.size(2);
  const int64_t width = qkv.numel() / tokens, heads = width / dim - 2 * kv_heads;
  TORCH_CHECK(heads > 0 && width % dim == 0, "qkv does not fit the pool");
  TORCH_CHECK(cosine.numel() == tokens * dim && sine.numel() == tokens * dim,
              "one rotation a token and dimension expected");
  TORCH_CHECK(keys.sizes() == values.sizes(), "keys and values must have one shape");
  for (const std::optional<at::Tensor>* norm : {&query_weight, &key_weight}) {
    if (!norm->has_value()) continue;
    check(**norm, "a norm's weight");
    TORCH_CHECK((*norm)->numel() == dim, "a norm's weight must have one number a dimension");
  }
  at::Tensor query = at::empty({tokens, heads, dim}, qkv.options());
  const int64_t* place = places.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens; ++i)
    TORCH_CHECK(place[i] >= 0 && place[i] < keys.size(0), "a place lies outside the pool");
  with_type(qkv, [&](auto kind) {
    using T = decltype(kind);
    const T* in = qkv.const_data_ptr<T>();
    const T* c = cosine.const_data_ptr<T>();
    const T* s = sine.const_data_ptr<T>();
    const T* query_norm = query_weight ? query_weight->const_data_ptr<T>() : nullptr;
    const T* key_norm = key_weight ? key_weight->const_data_ptr<T>() : nullptr;
    T* q = query.mutable_data_ptr<T>();
    T* k = keys.mutable_data_ptr<T>();
    T* v = values.mutable_data_ptr<T>();
    const Turn<T> how{heads, kv_heads, dim, query_norm, key_norm, static_cast<float>(eps)};
    at::parallel_for(0, tokens, std::max<int64_t>(1, kGrain / width), [&](int64_t a, int64_t b) {
      Numbers<T> scratch(dim);
      for (int64_t t = a; t < b; ++t) {
        const int64_t at = place[t] * kv_heads * dim;
        turn_token(how, in + t * width, c + t * dim, s + t * dim, scratch.data(),
                   q + t * heads * dim, k + at, v + at);
      }
    });
  });
  return query;
}

// Attention of requests that add one token each. query [tokens, heads, dim]; the pool's keys and
// values [num_places, kv_heads, dim]; for request r: row rows[r] of the query, `lengths[r]` visible
// positions, whose blocks are blocks[starts[r]:]. Writes those rows of out [tokens, heads, dim].
// window: how many positions back are seen, 0 for all; softcap: 0 for none.
void decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                      const at::Tensor& rows, const at::Tensor& lengths, const at::Tensor& starts,
                      const at::Tensor& blocks, int64_t block_size, double scale, int64_t window,
                      double softcap, at::Tensor& out) {
  check(query, "query");
  check(keys, "keys");
  check(values, "values");
  check(out, "out");
  const int64_t heads = query.size(1), dim = query.size(2), kv_heads = keys.size(1);
  TORCH_CHECK(keys.size(2) == dim && values.size(2) == dim && heads % kv_heads == 0,
              "unsupported head sizes");
  TORCH_CHECK(out.sizes() == query.sizes() && values.sizes() == keys.sizes(),
              "results must have the queries' shape, and values the keys'");
  const at::Tensor counts = at::ones_like(rows);
  const Sequences sequences = sequences_of(rows, counts, lengths, starts, blocks, block_size,
                                           query.size(0), keys.size(0));
  const Heads all{heads, kv_heads, dim, static_cast<float>(scale), static_cast<float>(softcap)};
  const int64_t grains = sequences.total * kv_heads * dim / kContextGrain;
  const int threads = static_cast<int>(std::clamp<int64_t>(grains, 1, at::get_num_threads()));
  with_type(query, [&](auto kind) {
    using T = decltype(kind);
    const Pool<T> pool{const_cast<T*>(keys.const_data_ptr<T>()),
                       const_cast<T*>(values.const_data_ptr<T>()), window};
    const Rows<T> from = rows_of(query.const_data_ptr<T>(), query.numel(), heads * dim);
    const Rows<T> to = rows_of(out.mutable_data_ptr<T>(), out.numel(), heads * dim);
    Attention<T> attention(all, sequences, from, to, threads);
    Team::run(threads, [&](Team& team, int thread) { attention.run(team, thread, pool); });
  });
}

// Whether bfloat16 products run on this processor's tiles; without, there are none of ours.
bool has_tiles() {
#if PHASESCOPE_AMX
  return may_use_tiles();
#else
  return false;
#endif
}

// Whether attention runs on tiles, where scores are not capped.
bool fills_tiles_op(int64_t dim, int64_t block_size) {
#if PHASESCOPE_AMX
  return may_use_tiles() && fills_tiles(dim, block_size);
#else
  return false;
#endif
}

// panels: float32 [outputs / 16, 16, inputs], bfloat16 [outputs / 16, inputs / 2, 16, 2].
// bias [outputs], or no numbers for none.
template <typename T>
Weights<T> weights_of(const at::Tensor& panels, const at::Tensor& bias) {
  check(panels, "panels");
  check(bias, "bias");
  const int64_t outputs = panels.size(0) * kPanel, inputs = panels.numel() / outputs;
  const int64_t least = std::is_same_v<T, float> ? kLanes : kTileInputs;
  TORCH_CHECK(outputs % (2 * kPanel) == 0 && inputs % least == 0, "weights do not fill the panels");
  TORCH_CHECK(bias.numel() == 0 || bias.numel() == outputs, "one bias an output expected");
  return {panels.const_data_ptr<T>(), bias.numel() ? bias.const_data_ptr<T>() : nullptr, outputs,
          inputs};
}

// Calls f(x, weights) with a type whose products are ours.
template <typename F>
void with_weights(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias, F&& f) {
  check(x, "x");
  TORCH_CHECK(x.scalar_type() == panels.scalar_type() && x.scalar_type() == bias.scalar_type(),
              "x, panels and bias must have one type");
  with_type(x, [&](auto kind) {
    using T = decltype(kind);
    if constexpr (PHASESCOPE_AMX || std::is_same_v<T, float>) {
      TORCH_CHECK((std::is_same_v<T, float>) || has_tiles(), "no tiles are to be had here");
      const Weights<T> weights = weights_of<T>(panels, bias);
      TORCH_CHECK(x.size(-1) == weights.inputs, "x does not fit the weights");
      f(rows_of<T>(x.const_data_ptr<T>(), x.numel(), weights.inputs), weights);
    } else {
      TORCH_CHECK(false, "bfloat16 products need a processor with tiles");
    }
  });
}

at::Tensor empty_rows(const at::Tensor& x, int64_t width) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = width;
  return at::empty(shape, x.options());
}

// x [..., inputs] -> [..., outputs].
at::Tensor project(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias) {
  at::Tensor out = empty_rows(x, panels.size(0) * kPanel);
  with_weights(x, panels, bias, [&]<typename T>(Rows<T> from, const Weights<T>& weights) {
    const Rows<T> to = rows_of(out.mutable_data_ptr<T>(), out.numel(), weights.outputs);
    Team::run(at::get_num_threads(), [&](Team& team, int) { multiply_all(team, from, weights, to); });
  });
  return out;
}

// out [..., outputs] += the same.
void project_add(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias,
                 at::Tensor& out) {
  check(out, "out");
  with_weights(x, panels, bias, [&]<typename T>(Rows<T> from, const Weights<T>& weights) {
    TORCH_CHECK(out.numel() == from.count * weights.outputs, "out does not fit the weights");
    const Rows<T> to = rows_of(out.mutable_data_ptr<T>(), out.numel(), weights.outputs);
    Team::run(at::get_num_threads(), [&](Team& team, int) { multiply_add(team, from, weights, to); });
  });
}

// x [..., inputs] -> silu(first half of the outputs) * second half [..., outputs / 2].
at::Tensor project_gated(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias) {
  at::Tensor out = empty_rows(x, panels.size(0) * kPanel / 2);
  with_weights(x, panels, bias, [&]<typename T>(Rows<T> from, const Weights<T>& weights) {
    const Rows<T> to = rows_of(out.mutable_data_ptr<T>(), out.numel(), weights.outputs / 2);
    Team::run(at::get_num_threads(), [&](Team& team, int) { multiply_gated(team, from, weights, to); });
  });
  return out;
}

// One layer's tensors in `run_layers`, in this order; a norm or bias of no numbers is none.
enum Part { kInputNorm, kOutputNorm, kQueryNorm, kKeyNorm, kFirstWeights, kParts = 12 };

template <typename T>
const T* norm_of(const at::Tensor& weight, int64_t size, bool optional) {
  check(weight, "a norm's weight");
  TORCH_CHECK(weight.numel() == size || (optional && weight.numel() == 0),
              "a norm's weight must have one number a dimension");
  return weight.numel() ? weight.const_data_ptr<T>() : nullptr;
}

template <typename T>
Layer<T> layer_of(const at::Tensor* part, at::Tensor keys, at::Tensor values, int64_t window) {
  check(keys, "keys");
  check(values, "values");
  const at::Tensor* weights = part + kFirstWeights;
  Layer<T> layer{};
  layer.qkv = weights_of<T>(weights[0], weights[1]);
  layer.output = weights_of<T>(weights[2], weights[3]);
  layer.gate_up = weights_of<T>(weights[4], weights[5]);
  layer.down = weights_of<T>(weights[6], weights[7]);
  layer.input_norm = norm_of<T>(part[kInputNorm], layer.qkv.inputs, false);
  layer.output_norm = norm_of<T>(part[kOutputNorm], layer.qkv.inputs, false);
  layer.query_norm = norm_of<T>(part[kQueryNorm], keys.size(2), true);
  layer.key_norm = norm_of<T>(part[kKeyNorm], keys.size(2), true);
  layer.pool = {keys.mutable_data_ptr<T>(), values.mutable_data_ptr<T>(), window};
  return layer;
}

// The shape that all layers have.
template <typename T>
Shape shape_of(const std::vector<Layer<T>>& layers, int64_t kv_heads, int64_t dim, double scale,
               at::ArrayRef<double> eps) {
  const Layer<T>& first = layers.front();
  const Heads heads{first.output.inputs / dim, kv_heads, dim, static_cast<float>(scale), 0.0f};
  const Shape shape{first.qkv.inputs,           first.down.inputs,
                    heads,                      static_cast<float>(eps[0]),
                    static_cast<float>(eps[1]), static_cast<float>(eps[2])};
  for (const Layer<T>& layer : layers)
    TORCH_CHECK(
        layer.qkv.inputs == shape.hidden && layer.qkv.outputs == heads.width() &&
            layer.output.inputs == heads.count * dim && layer.output.outputs == shape.hidden &&
            layer.gate_up.inputs == shape.hidden && layer.down.outputs == shape.hidden &&
            layer.gate_up.outputs == 2 * shape.intermediate &&
            layer.down.inputs == shape.intermediate && heads.count % kv_heads == 0,
        "the layers' weights do not fit each other");
  return shape;
}

// hidden [batch, hidden_size] through all layers, in place: request r's counts[r] tokens are the
// rows from rows[r] on, and the last of its lengths[r] positions. parts: for each layer its norms
// (input, output, query, key), and panels and bias of qkv, attention output, gate and up, down;
// pool: keys and values of each layer; windows: how far back each sees, 0 for all; eps: of the
// input, output and head norms. The rest as above.
void run_layers_op(at::Tensor& hidden, const at::Tensor& cosine, const at::Tensor& sine,
                   const at::Tensor& places, const at::Tensor& rows, const at::Tensor& counts,
                   const at::Tensor& lengths, const at::Tensor& starts, const at::Tensor& blocks,
                   int64_t block_size, at::TensorList parts, at::TensorList pool,
                   at::IntArrayRef windows, at::ArrayRef<double> eps, double scale) {
  check(hidden, "hidden");
  check(cosine, "cosine");
  check(sine, "sine");
  check(places, "places");
  const int64_t batch = places.numel(), num_layers = static_cast<int64_t>(windows.size());
  TORCH_CHECK(num_layers > 0 && parts.size() == static_cast<size_t>(num_layers * kParts) &&
                  pool.size() == static_cast<size_t>(2 * num_layers) && eps.size() == 3,
              "parts, pool and windows of every layer expected");
  const int64_t kv_heads = pool[0].size(1), dim = pool[0].size(2), num_places = pool[0].size(0);
  for (const at::Tensor& one : pool)
    TORCH_CHECK(one.sizes() == pool[0].sizes(), "all layers' pools must have one shape");
  TORCH_CHECK(cosine.numel() == batch * dim && sine.numel() == batch * dim,
              "one rotation a token and dimension expected");
  const Sequences sequences =
      sequences_of(rows, counts, lengths, starts, blocks, block_size, batch, num_places);
  int64_t covered = 0;
  for (int64_t r = 0; r < sequences.count; covered += sequences.counts[r++])
    TORCH_CHECK(sequences.rows[r] == covered, "requests must follow each other in the batch");
  TORCH_CHECK(covered == batch, "every row must belong to a request");
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t place = places.const_data_ptr<int64_t>()[i];
    TORCH_CHECK(place >= 0 && place < num_places, "a place lies outside the pool");
  }
  with_type(hidden, [&](auto kind) {
    using T = decltype(kind);
    if constexpr (PHASESCOPE_AMX || std::is_same_v<T, float>) {
      TORCH_CHECK((std::is_same_v<T, float>) || has_tiles(), "no tiles are to be had here");
      std::vector<Layer<T>> layers;
      for (int64_t i = 0; i < num_layers; ++i)
        layers.push_back(layer_of<T>(&parts[i * kParts], pool[2 * i], pool[2 * i + 1], windows[i]));
      const Shape shape = shape_of(layers, kv_heads, dim, scale, eps);
      TORCH_CHECK(hidden.numel() == batch * shape.hidden, "hidden does not fit the layers");
      const Batch<T> tokens{batch, cosine.const_data_ptr<T>(), sine.const_data_ptr<T>(),
                            places.const_data_ptr<int64_t>()};
      run_layers(layers, shape, tokens, sequences, hidden.mutable_data_ptr<T>());
    } else {
      TORCH_CHECK(false, "bfloat16 products need a processor with tiles");
    }
  });
}

}  // namespace

TORCH_LIBRARY(phasescope, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", rms_norm);
  library.def("silu_mul(Tensor gate_up) -> Tensor", silu_mul);
  library.def(
      "rotate_and_store(Tensor qkv, Tensor cosine, Tensor sine, Tensor places, Tensor(a!) keys, "
      "Tensor(b!) values, Tensor? query_weight, Tensor? key_weight, float eps) -> Tensor",
      rotate_and_store);
  library.def(
      "decode_attention(Tensor query, Tensor keys, Tensor values, Tensor rows, Tensor lengths, "
      "Tensor starts, Tensor blocks, int block_size, float scale, int window, float softcap, "
      "Tensor(a!) out) -> ()",
      decode_attention);
  library.def("has_tiles() -> bool", has_tiles);
  library.def("fills_tiles(int dim, int block_size) -> bool", fills_tiles_op);
  library.def("project(Tensor x, Tensor panels, Tensor bias) -> Tensor", project);
  library.def("project_add(Tensor x, Tensor panels, Tensor bias, Tensor(a!) out) -> ()",
              project_add);
  library.def("project_gated(Tensor x, Tensor panels, Tensor bias) -> Tensor", project_gated);
  library.def(
      "run_layers(Tensor(a!) hidden, Tensor cosine, Tensor sine, Tensor places, Tensor rows, "
      "Tensor counts, Tensor lengths, Tensor starts, Tensor blocks, int block_size, "
      "Tensor[] parts, "
      "Tensor(b!)[] pool, int[] windows, float[] eps, float scale) -> ()",
      run_layers_op);
}
