// All layers of a step in one go, whatever mix of prompts and single tokens it has.
//
// The layers are of the common shape: RMS norms, rotary attention, a gated feed-forward with SiLU.
// Threads meet a few times a layer and are not sent to sleep between; Python is not entered.

#pragma once

#include <ATen/Parallel.h>

#include <cstdint>
#include <vector>

#include "elementwise.h"
#include "lanes.h"
#include "matmul.h"
#include "step_attention.h"
#include "team.h"

namespace phasescope {

// One layer's weights and its part of the KV pool. query_norm and key_norm are null where there are
// none; gate_up has the gate's panels first.
template <typename T>
struct Layer {
  const T *input_norm, *output_norm, *query_norm, *key_norm;
  Weights<T> qkv, output, gate_up, down;
  Pool<T> pool;
};

struct Shape {
  int64_t hidden, intermediate;
  Heads heads;
  float input_eps, output_eps, head_eps;
};

// The batch: a rotation [dim] a row, and the place in the pool that each row's token takes.
template <typename T>
struct Batch {
  int64_t size;
  const T *cosine, *sine;
  const int64_t* places;
};

// A matrix of activations that is kept for a step.
template <typename T>
struct Activations {
  Numbers<T> numbers;
  Rows<T> rows;

  Activations(int64_t count, int64_t width) : numbers(count * stride_of<T>(width)) {
    rows = {numbers.data(), count, stride_of<T>(width)};
  }
};

// Calls done(row, strip, low, high) for every row and strip: sums of two panels, biases added. The
// panels of a strip are `apart` panels from each other.
template <typename T, typename F>
void product(Team& team, Rows<T> x, const Weights<T>& weights, int64_t apart, F&& done) {
  constexpr int64_t kPieces = 8;  // a thread, at least
  const int64_t strips = weights.outputs / (2 * kPanel);
  const int64_t piece = std::max<int64_t>(1, strips / (kPieces * team.size()));
  const Rows<const T> from{x.data, x.count, x.stride};
  team.share(strips, piece, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t low = apart == 1 ? 2 * strip : strip, high = low + apart;
      const Lanes low_bias = weights.bias_of(low), high_bias = weights.bias_of(high);
      multiply(from, weights.inputs, weights.panel(low), weights.panel(high),
               [&](int64_t row, Lanes a, Lanes b) {
                 done(row, strip, a + low_bias, b + high_bias);
               });
    }
  });
}

// out [rows, outputs] = x times weights.
template <typename T>
void multiply_all(Team& team, Rows<T> x, const Weights<T>& weights, Rows<T> out) {
  product(team, x, weights, 1, [&](int64_t row, int64_t strip, Lanes low, Lanes high) {
    T* to = out[row] + strip * 2 * kPanel;
    store(low, to);
    store(high, to + kPanel);
  });
}

// out [rows, outputs] += x times weights.
template <typename T>
void multiply_add(Team& team, Rows<T> x, const Weights<T>& weights, Rows<T> out) {
  product(team, x, weights, 1, [&](int64_t row, int64_t strip, Lanes low, Lanes high) {
    T* to = out[row] + strip * 2 * kPanel;
    store(load(to) + rounded<T>(low), to);
    store(load(to + kPanel) + rounded<T>(high), to + kPanel);
  });
}

// out [rows, outputs / 2] = silu(first half of the products) * second half.
template <typename T>
void multiply_gated(Team& team, Rows<T> x, const Weights<T>& weights, Rows<T> out) {
  product(team, x, weights, weights.outputs / 2 / kPanel,
          [&](int64_t row, int64_t strip, Lanes gate, Lanes up) {
            store(gated<T>(rounded<T>(gate), rounded<T>(up)), out[row] + strip * kPanel);
          });
}

// out = RMS norm of each row of x.
template <typename T>
void norm_all(Team& team, Rows<T> x, int64_t width, const T* weight, float eps, Rows<T> out) {
  constexpr int64_t kRows = 4;
  team.share(x.count, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) normalise(x[row], weight, out[row], width, eps);
  });
}

// Rotates all queries in place, and stores keys, rotated, and values in the pool. scratch [dim]: the
// thread's own.
template <typename T>
void rotate_all(Team& team, const Layer<T>& layer, const Shape& shape, const Batch<T>& batch,
                Rows<T> qkv, T* scratch) {
  constexpr int64_t kRows = 4;
  const Heads& heads = shape.heads;
  const int64_t dim = heads.dim, stride = heads.kv_stride();
  const Turn<T> how{heads.count, heads.kv_count, dim, layer.query_norm, layer.key_norm,
                    shape.head_eps};
  team.share(batch.size, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t place = batch.places[row] * stride;
      turn_token(how, qkv[row], batch.cosine + row * dim, batch.sine + row * dim,
                 scratch, qkv[row], layer.pool.keys + place, layer.pool.values + place);
    }
  });
}

// hidden [batch, hidden], in and out, through all layers.
template <typename T>
void run_layers(const std::vector<Layer<T>>& layers, const Shape& shape, const Batch<T>& batch,
                const Sequences& sequences, T* hidden) {
  const int threads = at::get_num_threads();
  const int64_t size = batch.size;
  const Heads& heads = shape.heads;
  Activations<T> total(size, shape.hidden), normed(size, shape.hidden), qkv(size, heads.width()),
      mixed(size, heads.count * heads.dim), activated(size, shape.intermediate);
  for (int64_t row = 0; row < size; ++row)
    std::copy_n(hidden + row * shape.hidden, shape.hidden, total.rows[row]);
  Attention<T> attention(heads, sequences, qkv.rows, mixed.rows, threads);
  std::vector<Numbers<T>> scratch(threads, Numbers<T>(heads.dim));
  Team::run(threads, [&](Team& team, int thread) {
    for (const Layer<T>& layer : layers) {
      norm_all(team, total.rows, shape.hidden, layer.input_norm, shape.input_eps, normed.rows);
      multiply_all(team, normed.rows, layer.qkv, qkv.rows);
      rotate_all(team, layer, shape, batch, qkv.rows, scratch[thread].data());
      attention.run(team, thread, layer.pool);
      multiply_add(team, mixed.rows, layer.output, total.rows);
      norm_all(team, total.rows, shape.hidden, layer.output_norm, shape.output_eps, normed.rows);
      multiply_gated(team, normed.rows, layer.gate_up, activated.rows);
      multiply_add(team, activated.rows, layer.down, total.rows);
    }
  });
  for (int64_t row = 0; row < size; ++row)
    std::copy_n(total.rows[row], shape.hidden, hidden + row * shape.hidden);
}

}  // namespace phasescope
