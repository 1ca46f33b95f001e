// Attention of single new tokens on the processor's tiles: up to sixteen heads of one request share
// a pass over its context, so that keys and values of all their KV heads are read as they lie in the
// pool, one stream each.
//
// A long context is gone through in spans, which threads share. The tiles' product adds over a
// tile's columns; a query's numbers stand in the columns of its own KV head and zeros elsewhere.

#pragma once

#include "tiles.h"

#if PHASESCOPE_AMX

namespace phasescope {

constexpr int64_t kSpan = 512;  // positions

// The query heads [first, first + count) of `group` a KV head.
struct Pass {
  int64_t first, count, group, dim;

  int64_t first_kv() const { return first / group; }
  int64_t end_kv() const { return (first + count - 1) / group + 1; }
  int64_t width() const { return (end_kv() - first_kv()) * dim; }
};

// How many query heads go in one pass: of whole KV heads, where one's fit.
inline int64_t heads_of_pass(int64_t group) {
  return group <= kQueries ? kQueries / group * group : kQueries;
}

// What a pass over a span yields: the softmax of its scores, and for each query the sum of values
// [dim], each times its weight. Of every 32 dimensions the order is that of `weigh_in_place`.
struct Partial {
  Softmax softmax;
  Numbers<float> sums;

  explicit Partial(int64_t numbers) : sums(numbers) {}
};

// Adds values of positions [from, to), each times its weight, for N queries of one KV head and
// 32 * WIDE dimensions. weights: of the first query at `from`. Positions are added in pairs, whose
// numbers are put beside each other: of 32 dimensions 0-3, 8-11, 16-19, 24-27 come first, then the
// others.
template <int N, int WIDE>
void weigh_in_place(const c10::BFloat16* values, const Context& context, int64_t from, int64_t to,
                    const uint32_t* weights, float* sums, int64_t dim) {
  constexpr int64_t kWide = 2 * kLanes, kAhead = 64;
  Lanes result[N][2 * WIDE];
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 2 * WIDE; ++i) result[n][i] = load(sums + n * dim + kLanes * i);
  auto add = [](Lanes sum, uint32_t weight, __m512i pairs) {
    const __m512i both = _mm512_set1_epi32(static_cast<int>(weight));
    return bits<Lanes>(_mm512_dpbf16_ps(bits<__m512>(sum), (__m512bh)both, (__m512bh)pairs));
  };
  for (int64_t position = from; position < to; position += kKeys) {
    const int64_t count = std::min(kKeys, to - position);
    const c10::BFloat16* tile = values + context.place_of(position) * context.stride;
    const int64_t next = std::min(position + kAhead, context.end - 1) / kKeys * kKeys;
    const c10::BFloat16* ahead = values + context.place_of(next) * context.stride;
    for (int64_t j = 0; j < count; j += 2, weights += kQueries) {
      const c10::BFloat16* first = tile + j * context.stride;
      // What lies beyond the last position may be no number, which no weight makes harmless.
      const c10::BFloat16* second = j + 1 < count ? first + context.stride : first;
      prefetch(ahead + j * context.stride, kWide * WIDE);
      prefetch(ahead + (j + 1) * context.stride, kWide * WIDE);
#pragma GCC unroll 2
      for (int i = 0; i < WIDE; ++i) {
        const __m512i a = _mm512_loadu_si512(first + kWide * i);
        const __m512i b = _mm512_loadu_si512(second + kWide * i);
        const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          result[n][2 * i] = add(result[n][2 * i], weights[n], low);
          result[n][2 * i + 1] = add(result[n][2 * i + 1], weights[n], high);
        }
      }
    }
  }
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 2 * WIDE; ++i) store(result[n][i], sums + n * dim + kLanes * i);
}

// The same for all dimensions of N queries.
template <int N>
void weigh_dimensions(const c10::BFloat16* values, const Context& context, int64_t from,
                      int64_t to, const uint32_t* weights, float* sums, int64_t dim) {
  int64_t d = 0;
  for (; d + 64 <= dim; d += 64)
    weigh_in_place<N, 2>(values + d, context, from, to, weights, sums + d, dim);
  if (d < dim) weigh_in_place<N, 1>(values + d, context, from, to, weights, sums + d, dim);
}

// The same for all queries of a pass; `values` begin with its first KV head.
inline void weigh_pass(const Pass& pass, const c10::BFloat16* values, const Context& context,
                       int64_t from, int64_t to, const uint32_t* weights, float* sums) {
  for (int64_t lane = 0; lane < pass.count;) {
    const int64_t head = pass.first + lane, kv = head / pass.group;
    const int64_t left = std::min((kv + 1) * pass.group - head, pass.count - lane);
    const c10::BFloat16* own = values + (kv - pass.first_kv()) * pass.dim;
    auto some = [&](auto count) {
      weigh_dimensions<count()>(own, context, from, to, weights + lane, sums + lane * pass.dim,
                                pass.dim);
      lane += count();
    };
    if (left >= 4)
      some(std::integral_constant<int, 4>());
    else if (left == 3)
      some(std::integral_constant<int, 3>());
    else if (left == 2)
      some(std::integral_constant<int, 2>());
    else
      some(std::integral_constant<int, 1>());
  }
}

// Puts the queries [count, dim] of a pass into the room, each at its KV head's dimensions.
inline void spread(const Pass& pass, const c10::BFloat16* queries, TileRoom& room) {
  const int64_t pairs = pass.dim / 2;
  std::fill_n(room.queries.data(), pass.width() / 2 * kQueries, 0u);
  for (int64_t lane = 0; lane < pass.count; ++lane) {
    const int64_t kv = (pass.first + lane) / pass.group - pass.first_kv();
    uint32_t* to = room.queries.data() + kv * pairs * kQueries + lane;
    for (int64_t d = 0; d < pairs; ++d)
      std::memcpy(to + d * kQueries, queries + lane * pass.dim + 2 * d, sizeof *to);
  }
  asm volatile("" : : : "memory");  // tile loads do not tell the compiler what they read
}

// A pass's attention over what its token sees of positions [begin, end), at most kSpan. keys and
// values: the pool's, of the first KV head. Tiles must have been shaped as whole.
inline void attend_span(const Pass& pass, const c10::BFloat16* queries, const c10::BFloat16* keys,
                        const c10::BFloat16* values, Context context, int64_t begin, int64_t end,
                        TileRoom& room, Partial& partial) {
  constexpr int64_t kAhead = 128, kTogether = 64;  // positions
  std::fill_n(partial.sums.data(), pass.count * pass.dim, 0.0f);
  const int64_t visible = std::max(begin, context.first);
  context.end = std::min(end, context.end);
  if (visible >= context.end) {
    partial.softmax = nothing_seen();
    return;
  }
  const int64_t first = visible / (2 * kKeys) * (2 * kKeys);  // where the passes over keys begin
  const int64_t length = in_whole(context.end - first, 2 * kKeys);
  const int64_t before = pass.first_kv() * pass.dim;
  spread(pass, queries, room);
  score_all<kAhead>(keys + before, context, first, pass.width(), room);
  Sight sight;
  sight.newest = Integers{} + static_cast<int32_t>(context.end);
  sight.oldest = Integers{} + static_cast<int32_t>(visible - 1);
  sight.all = visible == first ? context.end : 0;
  partial.softmax = weights_of_scores(context, sight, first, length, room);
  // In pieces that stay in the first cache while one KV head after the other takes its share.
  for (int64_t from = first; from < context.end; from += kTogether)
    weigh_pass(pass, values + before, context, from, std::min(from + kTogether, context.end),
               room.weights.data() + (from - first) / 2 * kQueries, partial.sums.data());
}

// The attention of a pass whose spans are the `count` partials, to out [pass.count, dim]. The sums
// come together in the first partial.
inline void join_spans(const Pass& pass, Partial* partials, int64_t count, c10::BFloat16* out) {
  Lanes peak = partials[0].softmax.peak, total = {};
  for (int64_t i = 1; i < count; ++i) {
    const Lanes other = partials[i].softmax.peak;
    peak = other > peak ? other : peak;
  }
  auto share = [&](int64_t i) { return exponential(partials[i].softmax.peak - peak); };
  for (int64_t i = 0; i < count; ++i) total += share(i) * partials[i].softmax.total;
  float* joined = partials[0].sums.data();
  for (int64_t i = 0; i < count; ++i) {
    const Lanes factors = share(i) / total;
    const float* sums = partials[i].sums.data();
    for (int64_t lane = 0; lane < pass.count; ++lane)
      for (int64_t at = lane * pass.dim; at < (lane + 1) * pass.dim; at += kLanes) {
        const Lanes weighed = factors[lane] * load(sums + at);
        store(i == 0 ? weighed : load(joined + at) + weighed, joined + at);
      }
  }
  for (int64_t at = 0; at < pass.count * pass.dim; at += 2 * kLanes) {
    const Lanes low = load(joined + at), high = load(joined + at + kLanes);
    const Lanes front = __builtin_shufflevector(low, high, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7,
                                                20, 21, 22, 23);
    const Lanes back = __builtin_shufflevector(low, high, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13,
                                               14, 15, 28, 29, 30, 31);
    store(front, out + at);
    store(back, out + at + kLanes);
  }
}

}  // namespace phasescope

#endif
