// All layers of a step in which every request adds one token, in one go.
//
// The layers are of the common shape: RMS norms, rotary attention, a gated feed-forward with SiLU.
// Threads meet a few times a layer and are not sent to sleep between; Python is not entered.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention.h"
#include "elementwise.h"
#include "lanes.h"
#include "matmul.h"
#include "team.h"

namespace phasescope {

// One layer's weights, its part of the KV pool, and how far back it sees (0: all). query_norm and
// key_norm are null where there are none; gate_up has the gate's panels first.
template <typename T>
struct Layer {
  const T *input_norm, *output_norm, *query_norm, *key_norm;
  Weights<T> qkv, output, gate_up, down;
  T *keys, *values;
  int64_t window;
};

struct Shape {
  int64_t hidden, heads, kv_heads, dim, intermediate;
  float scale, softcap, input_eps, output_eps, head_eps;

  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
};

// The batch: a rotation [dim] a row, and the place in the pool that each row's token takes.
template <typename T>
struct Batch {
  int64_t size;
  const T *cosine, *sine;
  const int64_t* places;
};

// Calls done(row, strip, low, high) for every row and strip: sums of two panels, biases added,
// rounded as T. The panels of a strip are `apart` panels from each other.
template <typename T, typename F>
void product(Team& team, const T* x, int64_t rows, const Weights<T>& weights, int64_t apart,
             F&& done) {
  constexpr int64_t kPieces = 8;  // a thread, at least
  const int64_t strips = weights.outputs / (2 * kPanel);
  const int64_t piece = std::max<int64_t>(1, strips / (kPieces * team.size()));
  team.share(strips, piece, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t low = apart == 1 ? 2 * strip : strip, high = low + apart;
      const Lanes low_bias = weights.bias_of(low), high_bias = weights.bias_of(high);
      multiply(x, rows, weights.inputs, weights.panel(low), weights.panel(high),
               [&](int64_t row, Lanes a, Lanes b) {
                 done(row, strip, rounded<T>(a + low_bias), rounded<T>(b + high_bias));
               });
    }
  });
}

// out [rows, outputs] = x times weights.
template <typename T>
void multiply_all(Team& team, const T* x, int64_t rows, const Weights<T>& weights, T* out) {
  product(team, x, rows, weights, 1, [&](int64_t row, int64_t strip, Lanes low, Lanes high) {
    T* to = out + row * weights.outputs + strip * 2 * kPanel;
    store(low, to);
    store(high, to + kPanel);
  });
}

// out [rows, outputs] += x times weights.
template <typename T>
void multiply_add(Team& team, const T* x, int64_t rows, const Weights<T>& weights, T* out) {
  product(team, x, rows, weights, 1, [&](int64_t row, int64_t strip, Lanes low, Lanes high) {
    T* to = out + row * weights.outputs + strip * 2 * kPanel;
    store(load(to) + low, to);
    store(load(to + kPanel) + high, to + kPanel);
  });
}

// out [rows, outputs / 2] = silu(first half of the products) * second half.
template <typename T>
void multiply_gated(Team& team, const T* x, int64_t rows, const Weights<T>& weights, T* out) {
  const int64_t size = weights.outputs / 2;
  product(team, x, rows, weights, size / kPanel,
          [&](int64_t row, int64_t strip, Lanes gate, Lanes up) {
            store(gated<T>(gate, up), out + row * size + strip * kPanel);
          });
}

// Rotates a request's queries and its key, stores key and value, and attends, head by head.
template <typename T>
void attend_all(Team& team, const Layer<T>& layer, const Shape& shape, const Batch<T>& batch,
                const Sequences& sequences, const T* qkv, float* scores, T* out) {
  const int64_t dim = shape.dim, group = shape.heads / shape.kv_heads;
  const int64_t stride = shape.kv_heads * dim;
  std::vector<T> rotated((group + 1) * dim), normed(dim);
  team.share(sequences.count * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item / shape.kv_heads, h = item % shape.kv_heads;
      const int64_t row = sequences.rows[r], place = batch.places[row];
      auto turn = [&](const T* head, const T* norm, T* to) {
        if (norm != nullptr) {
          normalise(head, norm, normed.data(), dim, shape.head_eps);
          head = normed.data();
        }
        rotate(head, batch.cosine + row * dim, batch.sine + row * dim, to, dim);
      };
      const T* queries = qkv + row * shape.width() + h * group * dim;
      const T* key = qkv + row * shape.width() + (shape.heads + h) * dim;
      for (int64_t i = 0; i < group; ++i)
        turn(queries + i * dim, layer.query_norm, rotated.data() + i * dim);
      T* own_key = layer.keys + place * stride + h * dim;
      turn(key, layer.key_norm, own_key);
      std::copy_n(key + stride, dim, layer.values + place * stride + h * dim);
      const Context context =
          sequences.context(r, stride, shape.scale, layer.window, shape.softcap);
      attend_head(rotated.data(), layer.keys + h * dim, layer.values + h * dim, context, group, dim,
                  scores, out + (row * shape.heads + h * group) * dim);
    }
  });
}

// hidden [batch, hidden], in and out, through all layers.
template <typename T>
void decode(const std::vector<Layer<T>>& layers, const Shape& shape, const Batch<T>& batch,
            const Sequences& sequences, T* hidden) {
  const int64_t rows = batch.size;
  std::vector<T> normed(rows * shape.hidden), qkv(rows * shape.width()),
      mixed(rows * shape.heads * shape.dim), activated(rows * shape.intermediate);
  Team::run([&](Team& team) {
    std::vector<float> scores(room_for_scores(sequences.longest));
    auto norm = [&](const T* weight, float eps) {
      team.share(rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * shape.hidden; i < end * shape.hidden; i += shape.hidden)
          normalise(hidden + i, weight, normed.data() + i, shape.hidden, eps);
      });
    };
    for (const Layer<T>& layer : layers) {
      norm(layer.input_norm, shape.input_eps);
      multiply_all(team, normed.data(), rows, layer.qkv, qkv.data());
      attend_all(team, layer, shape, batch, sequences, qkv.data(), scores.data(), mixed.data());
      multiply_add(team, mixed.data(), rows, layer.output, hidden);
      norm(layer.output_norm, shape.output_eps);
      multiply_gated(team, normed.data(), rows, layer.gate_up, activated.data());
      multiply_add(team, activated.data(), rows, layer.down, hidden);
    }
  });
}

}  // namespace phasescope
