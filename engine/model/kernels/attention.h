// Attention of single queries over their context in the paged KV pool, which is read in place.

#pragma once

#include <cmath>

#include "lanes.h"
#include "tensors.h"

namespace phasescope {

// One request's visible positions in the pool, and how to read them.
struct Context {
  const int64_t* blocks;
  int64_t block_size, first, end;  // positions [first, end)
  int64_t stride;                  // elements from one place to the next
  float scale, softcap;            // softcap: 0 for none

  int64_t place_of(int64_t position) const {
    return blocks[position / block_size] * block_size + position % block_size;
  }
};

// Calls f(index, place, count, ahead) for runs of at most kLanes neighbouring places of the
// context; the next run begins at the place `ahead`.
template <typename F>
inline void for_each_tile(const Context& context, F&& f) {
  int64_t position = context.first;
  while (position < context.end) {
    const int64_t in_block = context.block_size - position % context.block_size;
    const int64_t count = std::min({in_block, context.end - position, kLanes});
    const int64_t next = std::min(position + count, context.end - 1);
    f(position - context.first, context.place_of(position), count, context.place_of(next));
    position += count;
  }
}

// A head's places lie apart in memory, which the processor does not foresee.
template <typename T>
inline void prefetch(const T* from, int64_t size) {
  const char* bytes = reinterpret_cast<const char*>(from);
  for (int64_t i = 0; i < size * static_cast<int64_t>(sizeof(T)); i += 64)
    __builtin_prefetch(bytes + i);
}

inline float greatest(const float* numbers, int64_t count) {
  Lanes most = Lanes{} + numbers[0];
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes some = load(numbers + i);
    most = some > most ? some : most;
  }
  float peak = numbers[0];
  for (int lane = 0; lane < kLanes; ++lane) peak = std::max(peak, most[lane]);
  for (; i < count; ++i) peak = std::max(peak, numbers[i]);
  return peak;
}

// Scores to weights in place, not yet divided by their sum, which is returned.
inline float soften(float* scores, int64_t length, float softcap) {
  if (softcap > 0.0f)
    for (int64_t i = 0; i < length; ++i) scores[i] = softcap * std::tanh(scores[i] / softcap);
  const float peak = greatest(scores, length);
  Lanes sum = {};
  int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    const Lanes weights = exponential(load(scores + i) - peak);
    store(weights, scores + i);
    sum += weights;
  }
  float total = total_of(sum);
  for (; i < length; ++i) total += scores[i] = std::exp(scores[i] - peak);
  return total;
}

// N queries of one KV head over its context, heads of kLanes * CHUNKS numbers. `scores` has room
// for N * (end - first + kLanes) numbers.
template <typename T, int N, int CHUNKS>
void attend(const T* query, const T* keys, const T* values, const Context& context, float* scores,
            T* out) {
  constexpr int64_t dim = kLanes * CHUNKS;
  const int64_t length = context.end - context.first, room = length + kLanes;
  Lanes q[N][CHUNKS];
  for (int n = 0; n < N; ++n)
    for (int c = 0; c < CHUNKS; ++c) q[n][c] = load(query + n * dim + kLanes * c) * context.scale;
  for_each_tile(context, [&](int64_t index, int64_t place, int64_t count, int64_t ahead) {
    Lanes products[N][kLanes] = {};
    for (int64_t j = 0; j < count; ++j) {
      const T* key = keys + (place + j) * context.stride;
      prefetch(keys + (ahead + j) * context.stride, dim);
      prefetch(values + (place + j) * context.stride, dim);  // for the second pass
      Lanes product[N] = {};
#pragma GCC unroll 16
      for (int c = 0; c < CHUNKS; ++c) {
        const Lanes lanes = load(key + kLanes * c);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) product[n] += q[n][c] * lanes;
      }
      for (int n = 0; n < N; ++n) products[n][j] = product[n];
    }
    for (int n = 0; n < N; ++n) {
      store(sums(products[n]), scores + n * room + index);
    }
  });
  Lanes result[N][CHUNKS] = {};
  float total[N];
  for (int n = 0; n < N; ++n) total[n] = soften(scores + n * room, length, context.softcap);
  for_each_tile(context, [&](int64_t index, int64_t place, int64_t count, int64_t) {
    for (int64_t j = 0; j < count; ++j) {
      const T* value = values + (place + j) * context.stride;
#pragma GCC unroll 16
      for (int c = 0; c < CHUNKS; ++c) {
        const Lanes lanes = load(value + kLanes * c);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) result[n][c] += scores[n * room + index + j] * lanes;
      }
    }
  });
  for (int n = 0; n < N; ++n)
    for (int c = 0; c < CHUNKS; ++c) store(result[n][c] / total[n], out + n * dim + kLanes * c);
}

// The same for one query and heads of any size; `scores` has room for `dim` numbers more.
template <typename T>
void attend_any(const T* query, const T* keys, const T* values, const Context& context,
                int64_t dim, float* scores, T* out) {
  const int64_t length = context.end - context.first;
  for_each_tile(context, [&](int64_t index, int64_t place, int64_t count, int64_t) {
    for (int64_t j = 0; j < count; ++j) {
      const T* key = keys + (place + j) * context.stride;
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < dim; ++i)
        sum += static_cast<float>(query[i]) * static_cast<float>(key[i]);
      scores[index + j] = sum * context.scale;
    }
  });
  const float total = soften(scores, length, context.softcap);
  float* result = scores + length;
  std::fill_n(result, dim, 0.0f);
  for_each_tile(context, [&](int64_t index, int64_t place, int64_t count, int64_t) {
    for (int64_t j = 0; j < count; ++j) {
      const T* value = values + (place + j) * context.stride;
      const float weight = scores[index + j];
#pragma omp simd
      for (int64_t i = 0; i < dim; ++i) result[i] += weight * static_cast<float>(value[i]);
    }
  });
  for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<T>(result[i] / total);
}

// The queries that share a KV head, `width` at a time: they share each key that is read, and their
// sums must fit the registers.
template <typename T, int CHUNKS>
void attend_group(const T* query, const T* keys, const T* values, const Context& context,
                  int64_t group, float* scores, T* out) {
  constexpr int64_t dim = kLanes * CHUNKS;
  constexpr int width = CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 2 : 1;
  for (; group >= width; group -= width, query += width * dim, out += width * dim)
    attend<T, width, CHUNKS>(query, keys, values, context, scores, out);
  if constexpr (width > 2)
    if (group == 3) attend<T, 3, CHUNKS>(query, keys, values, context, scores, out);
  if constexpr (width > 2)
    if (group == 2) attend<T, 2, CHUNKS>(query, keys, values, context, scores, out);
  if constexpr (width > 1)
    if (group == 1) attend<T, 1, CHUNKS>(query, keys, values, context, scores, out);
}

// Numbers that `attend_head` needs for contexts of up to `longest` positions.
inline int64_t room_for_scores(int64_t longest, int64_t dim) {
  return 4 * (longest + kLanes) + dim;
}

// The `group` queries [group, dim] that share a KV head, over its context.
template <typename T>
void attend_head(const T* query, const T* keys, const T* values, const Context& context,
                 int64_t group, int64_t dim, float* scores, T* out) {
  switch (dim) {
    case 64:
      return attend_group<T, 4>(query, keys, values, context, group, scores, out);
    case 128:
      return attend_group<T, 8>(query, keys, values, context, group, scores, out);
    default:
      for (int64_t i = 0; i < group; ++i)
        attend_any(query + i * dim, keys, values, context, dim, scores, out + i * dim);
  }
}

// The requests of a batch: request r adds counts[r] tokens, which are the rows of the batch from
// rows[r] on and the last of its `lengths[r]` positions; its blocks are blocks[starts[r]:].
struct Sequences {
  const int64_t *rows, *counts, *lengths, *starts, *blocks;
  int64_t count, block_size, longest, total;  // total: the sum of the lengths

  // What the token sees that is its request's last but `back`.
  Context context(int64_t r, int64_t back, int64_t stride, double scale, int64_t window,
                  double softcap) const {
    const int64_t end = lengths[r] - back;
    const int64_t first = window > 0 ? std::max<int64_t>(0, end - window) : 0;
    return {blocks + starts[r],        block_size, first, end, stride,
            static_cast<float>(scale), static_cast<float>(softcap)};
  }
};

// Checks that all requests lie within a batch of `num_rows` and a pool of `num_places`.
inline Sequences sequences_of(const at::Tensor& rows, const at::Tensor& counts,
                              const at::Tensor& lengths, const at::Tensor& starts,
                              const at::Tensor& blocks, int64_t block_size, int64_t num_rows,
                              int64_t num_places) {
  check(rows, "rows");
  check(counts, "counts");
  check(lengths, "lengths");
  check(starts, "starts");
  check(blocks, "blocks");
  Sequences all{rows.const_data_ptr<int64_t>(),
                counts.const_data_ptr<int64_t>(),
                lengths.const_data_ptr<int64_t>(),
                starts.const_data_ptr<int64_t>(),
                blocks.const_data_ptr<int64_t>(),
                rows.numel(),
                block_size,
                0,
                0};
  TORCH_CHECK(counts.numel() == all.count && lengths.numel() == all.count &&
                  starts.numel() == all.count,
              "one count, one length and one start a request expected");
  for (int64_t r = 0; r < all.count; ++r) {
    const int64_t length = all.lengths[r], start = all.starts[r], count = all.counts[r];
    TORCH_CHECK(all.rows[r] >= 0 && count > 0 && all.rows[r] + count <= num_rows,
                "a row lies outside the batch");
    const int64_t used = (length + block_size - 1) / block_size;
    TORCH_CHECK(length > 0 && start >= 0 && start + used <= blocks.numel(),
                "a request's blocks are not all given");
    TORCH_CHECK(count <= length, "a request adds more tokens than it has positions");
    for (int64_t i = start; i < start + used; ++i)
      TORCH_CHECK(all.blocks[i] >= 0 && (all.blocks[i] + 1) * block_size <= num_places,
                  "a block lies outside the pool");
    all.longest = std::max(all.longest, length);
    all.total += length;
  }
  return all;
}

}  // namespace phasescope
