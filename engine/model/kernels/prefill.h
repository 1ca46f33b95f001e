// Attention of a prompt's tokens, sixteen of one head at a time, on the processor's tiles.
//
// For the product with the weights, values are turned once for all queries of a head.

#pragma once

#include "tiles.h"

#if PHASESCOPE_AMX

namespace phasescope {

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
inline void gather(const Queries& queries, int64_t dim, TileRoom& room) {
  for (int64_t d = 0; d < dim / 2; ++d)
    for (int64_t n = 0; n < kQueries; ++n) {
      uint32_t pair = 0;
      if (n < queries.count)
        std::memcpy(&pair, queries.numbers + n * queries.stride + 2 * d, sizeof pair);
      room.queries[d * kQueries + n] = pair;
    }
  asm volatile("" : : : "memory");  // tile loads do not tell the compiler what they read
}

// The queries' attention over one KV head; results go to `out`, `out_stride` apart. `context` tells
// what the last query sees; window: how many positions back each sees, 0 for all. Tiles must have
// been shaped as whole.
inline void attend_block(const Queries& queries, const c10::BFloat16* keys,
                         const TurnedValues& values, const Context& context, int64_t window,
                         int64_t dim, TileRoom& room, c10::BFloat16* out, int64_t out_stride) {
  const int64_t seen = window > 0 ? std::max<int64_t>(0, queries.position - window + 1) : 0;
  const int64_t first = seen / (2 * kKeys) * (2 * kKeys);  // where the passes over keys begin
  const int64_t length = in_whole(context.end - first, 2 * kKeys);
  gather(queries, dim, room);
  score_all<0>(keys, context, first, dim, room);
  Sight sight;
  for (int n = 0; n < kQueries; ++n) sight.newest[n] = static_cast<int32_t>(queries.position + n);
  sight.oldest = window > 0 ? sight.newest - static_cast<int32_t>(window) : sight.newest * 0 - 1;
  sight.all = window > 0 ? 0 : queries.position + 1;
  const Lanes scale = 1.0f / weights_of_scores(context, sight, first, length, room).total;
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
