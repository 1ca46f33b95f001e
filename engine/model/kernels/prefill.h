// Attention of a prompt's tokens, sixteen at a time, on the processor's tiles.
//
// Scores are computed with a key a row and a query a lane: keys are then read from the pool as they
// lie there, the softmax runs over rows, and its weights come out as the tiles want them. For the
// second product the values are turned once for all queries of a head.

#pragma once

#include <limits>
#include <vector>

#include "attention.h"
#include "lanes.h"
#include "matmul.h"

#if PHASESCOPE_AMX

namespace phasescope {

constexpr int64_t kQueries = 16;  // that share a pass over the keys
constexpr int64_t kKeys = 16;     // of a tile

// Whether heads of `dim` numbers and blocks of `block_size` positions fill tiles.
inline bool fills_tiles(int64_t dim, int64_t block_size) {
  return dim % kTileInputs == 0 && block_size % kKeys == 0;
}

inline int64_t in_whole(int64_t count, int64_t of) { return (count + of - 1) / of * of; }

// Values of one KV head, turned: [dim, stride], a position a column, zero where there is none.
struct TurnedValues {
  int64_t stride;
  Numbers<c10::BFloat16> numbers;

  // Room for `length` positions, in pairs of tiles.
  TurnedValues(int64_t dim, int64_t length)
      : stride((in_whole(length, 2 * kKeys) / kTileInputs | 1) * kTileInputs),
        numbers(dim * stride) {}

  void take(const c10::BFloat16* values, const Context& context, int64_t dim) {
    for (int64_t position = 0; position < context.end; position += kKeys) {
      const int64_t count = std::min(kKeys, context.end - position);
      const c10::BFloat16* from = values + context.place_of(position) * context.stride;
      for (int64_t d = 0; d < dim; ++d)
        for (int64_t i = 0; i < count; ++i)
          numbers[d * stride + position + i] = from[i * context.stride + d];
    }
  }
};

// What a thread needs for one block of queries, reused for the next.
struct PrefillRoom {
  Numbers<float> scores;      // [keys, queries]
  Numbers<uint32_t> weights;  // [keys / 2, queries], two keys' bfloat16 in each
  Numbers<uint32_t> queries;  // [dim / 2, queries], two dimensions' in each

  PrefillRoom(int64_t dim, int64_t longest)
      : scores(in_whole(longest, 2 * kKeys) * kQueries),
        weights(in_whole(longest, 2 * kKeys) / 2 * kQueries),
        queries(dim / 2 * kQueries) {}
};

// TILES tiles of keys times the queries: scores [TILES * 16, 16].
template <int TILES>
void score_keys(const c10::BFloat16* const* keys, int64_t stride, int64_t dim,
                const uint32_t* queries, float* scores) {
  static_assert(TILES == 1 || TILES == 4);
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(c10::BFloat16));
  _tile_zero(0);
  if constexpr (TILES == 4) {
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t d = 0; d < dim; d += kTileInputs) {
    _tile_loadd(6, queries + d / 2 * kQueries, 64);
    _tile_loadd(4, keys[0] + d, bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (TILES == 4) {
      _tile_loadd(5, keys[1] + d, bytes);
      _tile_dpbf16ps(1, 5, 6);
      _tile_loadd(4, keys[2] + d, bytes);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(5, keys[3] + d, bytes);
      _tile_dpbf16ps(3, 5, 6);
    }
  }
  constexpr int64_t kTile = kKeys * kQueries;
  _tile_stored(0, scores, 64);
  if constexpr (TILES == 4) {
    _tile_stored(1, scores + kTile, 64);
    _tile_stored(2, scores + 2 * kTile, 64);
    _tile_stored(3, scores + 3 * kTile, 64);
  }
}

// TILES * 16 dimensions of the values times the weights of `pairs` pairs of key tiles:
// results [TILES * 16, 16].
template <int TILES>
void weigh_values(const c10::BFloat16* values, int64_t stride, const uint32_t* weights,
                  int64_t pairs, float* results) {
  static_assert(TILES == 2 || TILES == 4);
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(c10::BFloat16)), below = 16 * stride;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (TILES == 4) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t pair = 0; pair < pairs; ++pair, values += kTileInputs, weights += 16 * kQueries) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(4, values, bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, values + below, bytes);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (TILES == 4) {
      _tile_loadd(4, values + 2 * below, bytes);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(5, values + 3 * below, bytes);
      _tile_dpbf16ps(3, 5, 6);
    }
  }
  constexpr int64_t kTile = 16 * kQueries;
  _tile_stored(0, results, 64);
  _tile_stored(1, results + kTile, 64);
  if constexpr (TILES == 4) {
    _tile_stored(2, results + 2 * kTile, 64);
    _tile_stored(3, results + 3 * kTile, 64);
  }
}

// `count` neighbouring queries of one head, the first at `position`, `stride` numbers apart.
struct Queries {
  const c10::BFloat16* numbers;
  int64_t stride, count, position;
};

// Puts the queries into the room as tiles want them; those that a block lacks are zero.
inline void gather(const Queries& queries, int64_t dim, PrefillRoom& room) {
  for (int64_t d = 0; d < dim / 2; ++d)
    for (int64_t n = 0; n < kQueries; ++n) {
      uint32_t pair = 0;
      if (n < queries.count)
        std::memcpy(&pair, queries.numbers + n * queries.stride + 2 * d, sizeof pair);
      room.queries[d * kQueries + n] = pair;
    }
  asm volatile("" : : : "memory");  // tile loads do not tell the compiler what they read
}

// Scores of the gathered queries with the keys from position `first` on.
inline void score_all(const c10::BFloat16* keys, const Context& context, int64_t first,
                      int64_t dim, PrefillRoom& room) {
  const int64_t end = in_whole(context.end, kKeys);
  const c10::BFloat16* tiles[4];
  for (int64_t key = first; key < end;) {
    const int64_t several = end - key >= 4 * kKeys ? 4 : 1;
    for (int64_t i = 0; i < several; ++i)
      tiles[i] = keys + context.place_of(key + i * kKeys) * context.stride;
    float* to = room.scores.data() + (key - first) * kQueries;
    if (several == 4)
      score_keys<4>(tiles, context.stride, dim, room.queries.data(), to);
    else
      score_keys<1>(tiles, context.stride, dim, room.queries.data(), to);
    key += several * kKeys;
  }
  asm volatile("" : : : "memory");
}

// Makes `length` rows of scores, the first of position `first`, into weights that are not yet
// divided by their sum, which is returned for each query. Keys that a query does not see weigh
// nothing, whatever lies there.
inline Lanes weights_of_scores(const Context& context, int64_t position, int64_t first,
                               int64_t length, int64_t window, PrefillRoom& room) {
  Integers own;  // each query's position
  for (int n = 0; n < kQueries; ++n) own[n] = static_cast<int32_t>(position + n);
  const Integers oldest = window > 0 ? own - static_cast<int32_t>(window) : own * 0 - 1;
  const Lanes nothing = Lanes{} - std::numeric_limits<float>::infinity();
  Lanes peak = Lanes{} - std::numeric_limits<float>::max();
  // Keys that every query sees: most, of a long prompt.
  const int64_t seen_by_all = window > 0 ? 0 : position + 1 - first;
  for (int64_t i = 0; i < length; ++i) {
    float* at = room.scores.data() + i * kQueries;
    const int32_t key = static_cast<int32_t>(first + i);
    Lanes scores = nothing;
    if (key < context.end) {
      scores = load(at) * context.scale;
      if (i >= seen_by_all) scores = (own >= key) & (oldest < key) ? scores : nothing;
    }
    store(scores, at);
    peak = scores > peak ? scores : peak;
  }
  Lanes total = {};
  for (int64_t i = 0; i < length; i += 2) {
    auto weight = [&](int64_t row) {
      const Lanes scores = load(room.scores.data() + row * kQueries);
      const Lanes weights =
          scores == nothing ? Lanes{} : exponential_as<c10::BFloat16>(scores - peak);
      total += weights;
      return __builtin_convertvector(halves_of(weights), Words);
    };
    const Words low = weight(i), pair = low | weight(i + 1) << 16;
    std::memcpy(room.weights.data() + i / 2 * kQueries, &pair, sizeof pair);
  }
  asm volatile("" : : : "memory");
  return total;
}

// The queries' attention over one KV head; results go to `out`, `out_stride` apart. `context` tells
// what the last query sees; window: how many positions back each sees, 0 for all. Tiles must have
// been shaped as whole.
inline void attend_block(const Queries& queries, const c10::BFloat16* keys,
                         const TurnedValues& values, const Context& context, int64_t window,
                         int64_t dim, PrefillRoom& room, c10::BFloat16* out, int64_t out_stride) {
  const int64_t seen = window > 0 ? std::max<int64_t>(0, queries.position - window + 1) : 0;
  const int64_t first = seen / (2 * kKeys) * (2 * kKeys);  // where the passes over keys begin
  const int64_t length = in_whole(context.end - first, 2 * kKeys);
  gather(queries, dim, room);
  score_all(keys, context, first, dim, room);
  const Lanes total = weights_of_scores(context, queries.position, first, length, window, room);
  const Lanes scale = 1.0f / total;
  alignas(64) float results[64 * kQueries];
  for (int64_t d = 0; d < dim;) {
    const int64_t size = dim - d >= 64 ? 64 : 32;
    const c10::BFloat16* from = values.numbers.data() + d * values.stride + first;
    if (size == 64)
      weigh_values<4>(from, values.stride, room.weights.data(), length / (2 * kKeys), results);
    else
      weigh_values<2>(from, values.stride, room.weights.data(), length / (2 * kKeys), results);
    asm volatile("" : : : "memory");
    for (int64_t i = 0; i < size; ++i) {
      c10::BFloat16 column[kQueries];
      store(load(results + i * kQueries) * scale, column);
      for (int64_t n = 0; n < queries.count; ++n) out[n * out_stride + d + i] = column[n];
    }
    d += size;
  }
}

}  // namespace phasescope

#endif
