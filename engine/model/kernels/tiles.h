// Sixteen queries' scores with keys of the paged pool, and their weights, on the processor's tiles.
//
// A key is a row and a query a lane: keys are then read from the pool as they lie there, the softmax
// runs over rows, and its weights come out in pairs of keys, as products with values want them.

#pragma once

#include <limits>

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

// What a thread needs for one pass, reused for the next.
struct TileRoom {
  Numbers<float> scores;      // [keys, queries]
  Numbers<uint32_t> weights;  // [keys / 2, queries], two keys' bfloat16 in each
  Numbers<uint32_t> queries;  // [width / 2, queries], two dimensions' in each

  // width: the dimensions of all heads of a pass; longest: the positions.
  TileRoom(int64_t width, int64_t longest)
      : scores(in_whole(longest, 2 * kKeys) * kQueries),
        weights(in_whole(longest, 2 * kKeys) / 2 * kQueries),
        queries(width / 2 * kQueries) {}
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

// Scores of the room's queries with the keys from position `first`, a whole tile's, to the context's
// end: `width` numbers of each. AHEAD: how many positions before their use keys are fetched; 0: they
// are in the caches already.
template <int64_t AHEAD>
void score_all(const c10::BFloat16* keys, const Context& context, int64_t first, int64_t width,
               TileRoom& room) {
  static_assert(AHEAD % kKeys == 0);
  const int64_t end = in_whole(context.end, kKeys);
  const c10::BFloat16* tiles[4];
  for (int64_t key = first; key < end;) {
    const int64_t several = end - key >= 4 * kKeys ? 4 : 1;
    for (int64_t i = 0; i < several; ++i) {
      const int64_t position = key + i * kKeys;
      tiles[i] = keys + context.place_of(position) * context.stride;
      if constexpr (AHEAD > 0)
        if (position + AHEAD < end) {
          const c10::BFloat16* next = keys + context.place_of(position + AHEAD) * context.stride;
          for (int64_t j = 0; j < kKeys; ++j) prefetch(next + j * context.stride, width);
        }
    }
    float* to = room.scores.data() + (key - first) * kQueries;
    if (several == 4)
      score_keys<4>(tiles, context.stride, width, room.queries.data(), to);
    else
      score_keys<1>(tiles, context.stride, width, room.queries.data(), to);
    key += several * kKeys;
  }
  asm volatile("" : : : "memory");
}

// Which keys each query sees: those after `oldest` up to `newest`, positions.
struct Sight {
  Integers newest, oldest;
  int64_t all;  // positions below this one are seen by every query
};

struct Softmax {
  Lanes peak, total;  // a query a lane: its highest score, and the sum of its weights
};

inline Softmax nothing_seen() {
  const Softmax none{Lanes{} - std::numeric_limits<float>::max(), {}};
  return none;
}

// Makes `length` rows of scores, the first of position `first`, into weights that are not yet
// divided by their sum. Keys that a query does not see weigh nothing, whatever lies there; values
// of theirs must still be numbers, as a request's earlier ones are.
inline Softmax weights_of_scores(const Context& context, const Sight& sight, int64_t first,
                                 int64_t length, TileRoom& room) {
  const Lanes nothing = Lanes{} - std::numeric_limits<float>::infinity();
  Softmax result = nothing_seen();
  for (int64_t i = 0; i < length; ++i) {
    float* at = room.scores.data() + i * kQueries;
    const int32_t key = static_cast<int32_t>(first + i);
    Lanes scores = nothing;
    if (key < context.end) {
      scores = load(at) * context.scale;
      if (key >= sight.all)
        scores = (sight.newest >= key) & (sight.oldest < key) ? scores : nothing;
    }
    store(scores, at);
    result.peak = scores > result.peak ? scores : result.peak;
  }
  for (int64_t i = 0; i < length; i += 2) {
    auto weight = [&](int64_t row) {
      const Lanes scores = load(room.scores.data() + row * kQueries);
      const Lanes weights =
          scores == nothing ? Lanes{} : exponential_as<c10::BFloat16>(scores - result.peak);
      result.total += weights;
      return __builtin_convertvector(halves_of(weights), Words);
    };
    const Words low = weight(i), pair = low | weight(i + 1) << 16;
    std::memcpy(room.weights.data() + i / 2 * kQueries, &pair, sizeof pair);
  }
  asm volatile("" : : : "memory");
  return result;
}

}  // namespace phasescope

#endif
