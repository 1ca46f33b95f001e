// All layers of a step in one go, whatever mix of prompts and single tokens it has.
//
// The layers are of the common shape: RMS norms, rotary attention, a gated feed-forward with SiLU.
// Threads meet a few times a layer and are not sent to sleep between; Python is not entered.

#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"
#include "elementwise.h"
#include "lanes.h"
#include "matmul.h"
#include "prefill.h"
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
  float scale, input_eps, output_eps, head_eps;

  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  int64_t group() const { return heads / kv_heads; }
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

// What a thread needs while it computes; allocated before the team sets out.
template <typename T>
struct Room {
  Numbers<T> head;
  Numbers<float> scores;
#if PHASESCOPE_AMX
  PrefillRoom prefill;
#endif

  // longest: of all contexts; blocks: whether some prompts go in blocks.
  Room(int64_t dim, int64_t longest, [[maybe_unused]] bool blocks)
      : head(dim),
        scores(room_for_scores(longest, dim))
#if PHASESCOPE_AMX
        ,
        prefill(dim, blocks ? longest : 0)
#endif
  {
  }
};

// Rotates all queries in place, and stores keys, rotated, and values in the pool.
template <typename T>
void rotate_all(Team& team, const Layer<T>& layer, const Shape& shape, const Batch<T>& batch,
                Rows<T> qkv, Room<T>& room) {
  constexpr int64_t kRows = 4;
  const int64_t dim = shape.dim, stride = shape.kv_heads * dim;
  const Turn<T> how{shape.heads,      shape.kv_heads, dim, layer.query_norm,
                    layer.key_norm, shape.head_eps};
  team.share(batch.size, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t place = batch.places[row] * stride;
      turn_token(how, qkv[row], batch.cosine + row * dim, batch.sine + row * dim,
                 room.head.data(), qkv[row], layer.keys + place, layer.values + place);
    }
  });
}

// A piece of a step's attention: some neighbouring tokens of a request, and one KV head.
struct Piece {
  int64_t request, head, first, count;  // first: of the request's tokens in this step
};

// How a step's attention is handed out: prompts in blocks of queries, where tiles can be used, and
// token by token where not.
class Pieces {
 public:
  Pieces(const Sequences& sequences, const Shape& shape, bool tiles) {
    for (int64_t r = 0; r < sequences.count; ++r) {
      const int64_t count = sequences.counts[r];
      const bool blocks = tiles && count > 1;
      if (blocks) turned_.push_back(r);
#if PHASESCOPE_AMX
      const int64_t step = blocks ? kQueries : 1;
#else
      const int64_t step = 1;
#endif
      for (int64_t first = 0; first < count; first += step)
        for (int64_t h = 0; h < shape.kv_heads; ++h)
          all_.push_back({r, h, first, std::min(step, count - first)});
    }
  }

  const std::vector<Piece>& all() const { return all_; }
  const std::vector<int64_t>& turned() const { return turned_; }  // requests that go in blocks

 private:
  std::vector<Piece> all_;
  std::vector<int64_t> turned_;
};

// One token's attention, its queries rotated.
template <typename T>
void attend_token(const Layer<T>& layer, const Shape& shape, const Sequences& sequences,
                  const Piece& piece, Rows<T> qkv, float* scores, Rows<T> out) {
  const int64_t r = piece.request, dim = shape.dim, group = shape.group();
  const int64_t row = sequences.rows[r] + piece.first;
  const Context context =
      sequences.context(r, sequences.counts[r] - piece.first - 1, shape.kv_heads * dim,
                        shape.scale, layer.window, 0.0);
  attend_head(qkv[row] + piece.head * group * dim, layer.keys + piece.head * dim,
              layer.values + piece.head * dim, context, group, dim, scores,
              out[row] + piece.head * group * dim);
}

// Attention of tokens whose keys and values are in the pool already.
template <typename T>
class Attention {
 public:
  Attention(const Shape& shape, const Sequences& sequences, Rows<T> qkv, Rows<T> out)
      : shape_(shape), sequences_(sequences), qkv_(qkv), out_(out),
        pieces_(sequences, shape, uses_tiles(shape, sequences)) {
#if PHASESCOPE_AMX
    for (int64_t r : pieces_.turned())
      for (int64_t h = 0; h < shape.kv_heads; ++h)
        values_.emplace_back(shape.dim, sequences.lengths[r]);
    turned_.assign(sequences.count, -1);
    for (size_t i = 0; i < pieces_.turned().size(); ++i)
      turned_[pieces_.turned()[i]] = static_cast<int64_t>(i) * shape.kv_heads;
#endif
  }

  // Whether some prompts go in blocks.
  bool in_blocks() const { return !pieces_.turned().empty(); }

  // On every thread of the team.
  void run(Team& team, const Layer<T>& layer, Room<T>& room) {
#if PHASESCOPE_AMX
    if constexpr (!std::is_same_v<T, float>)
      if (in_blocks()) return run_blocks(team, layer, room);
#endif
    const std::vector<Piece>& all = pieces_.all();
    team.share(static_cast<int64_t>(all.size()), 1, [&](int64_t begin, int64_t) {
      attend_token(layer, shape_, sequences_, all[begin], qkv_, room.scores.data(), out_);
    });
  }

 private:
  static bool uses_tiles(const Shape& shape, const Sequences& sequences) {
#if PHASESCOPE_AMX
    return !std::is_same_v<T, float> && fills_tiles(shape.dim, sequences.block_size);
#else
    return false;
#endif
  }

#if PHASESCOPE_AMX
  void run_blocks(Team& team, const Layer<T>& layer, Room<T>& room) {
    const int64_t dim = shape_.dim, stride = shape_.kv_heads * dim, group = shape_.group();
    team.share(static_cast<int64_t>(values_.size()), 1, [&](int64_t i, int64_t) {
      const int64_t r = pieces_.turned()[i / shape_.kv_heads], h = i % shape_.kv_heads;
      const Context all = sequences_.context(r, 0, stride, shape_.scale, 0, 0.0);
      values_[i].take(layer.values + h * dim, all, dim);
    });
    const std::vector<Piece>& all = pieces_.all();
    team.share(static_cast<int64_t>(all.size()), 1, [&](int64_t begin, int64_t) {
      const Piece& piece = all[begin];
      const int64_t r = piece.request, count = sequences_.counts[r];
      if (turned_[r] < 0)
        return attend_token(layer, shape_, sequences_, piece, qkv_, room.scores.data(), out_);
      const Context context =
          sequences_.context(r, count - piece.first - piece.count, stride, shape_.scale, 0, 0.0);
      const int64_t row = sequences_.rows[r] + piece.first;
      const int64_t position = sequences_.lengths[r] - count + piece.first;
      shape_tiles(kTileRows, kTileRows);
      for (int64_t head = piece.head * group; head < (piece.head + 1) * group; ++head)
        attend_block({qkv_[row] + head * dim, qkv_.stride, piece.count, position},
                     layer.keys + piece.head * dim, values_[turned_[r] + piece.head], context,
                     layer.window, dim, room.prefill, out_[row] + head * dim, out_.stride);
      _tile_release();
    });
  }

  std::vector<TurnedValues> values_;  // of each request in blocks and KV head
  std::vector<int64_t> turned_;       // where a request's begin, -1 for those token by token
#endif

  const Shape& shape_;
  const Sequences& sequences_;
  Rows<T> qkv_, out_;
  Pieces pieces_;
};

// hidden [batch, hidden], in and out, through all layers.
template <typename T>
void run_layers(const std::vector<Layer<T>>& layers, const Shape& shape, const Batch<T>& batch,
                const Sequences& sequences, T* hidden) {
  const int64_t size = batch.size;
  Activations<T> total(size, shape.hidden), normed(size, shape.hidden), qkv(size, shape.width()),
      mixed(size, shape.heads * shape.dim), activated(size, shape.intermediate);
  for (int64_t row = 0; row < size; ++row)
    std::copy_n(hidden + row * shape.hidden, shape.hidden, total.rows[row]);
  Attention<T> attention(shape, sequences, qkv.rows, mixed.rows);
  std::vector<Room<T>> rooms(at::get_num_threads(),
                             Room<T>(shape.dim, sequences.longest, attention.in_blocks()));
  Team::run([&](Team& team, int thread) {
    Room<T>& room = rooms[thread];
    for (const Layer<T>& layer : layers) {
      norm_all(team, total.rows, shape.hidden, layer.input_norm, shape.input_eps, normed.rows);
      multiply_all(team, normed.rows, layer.qkv, qkv.rows);
      rotate_all(team, layer, shape, batch, qkv.rows, room);
      attention.run(team, layer, room);
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
