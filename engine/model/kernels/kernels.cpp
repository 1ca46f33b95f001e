// What a decoding step does between its matrix products, on a CPU: normalisation, rotary positions,
// attention over the paged KV pool, and the gated activation. Each is one pass over memory where
// torch's own operators need several and a temporary for each.
//
// Arithmetic is in float32. Where transformers' modules round to the tensors' own type in between,
// so do these: the logits must stay what the modules give.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

// Waking a thread costs some ten microseconds: about this many numbers of one pass are worth one,
// and this many keys' and values' numbers of attention.
constexpr int64_t kGrain = 32768;
constexpr int64_t kContextGrain = 98304;

// Sixteen numbers, in one register or in as many as the processor needs.
typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t Integers __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
constexpr int64_t kLanes = 16;

template <typename To, typename From>
inline To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// A bfloat16 is the upper half of a float32.
inline Lanes load(const c10::BFloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return bits<Lanes>(__builtin_convertvector(halves, Words) << 16);
}

inline void store(Lanes lanes, float* to) { std::memcpy(to, &lanes, sizeof lanes); }

// To the nearest, of equals the even one; NaN stays NaN.
inline Words upper_halves(Lanes lanes) {
  const Words words = bits<Words>(lanes);
  const Words nearest = (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
  return lanes == lanes ? nearest : (words >> 16) | 0x40u;
}

inline void store(Lanes lanes, c10::BFloat16* to) {
  const Halves halves = __builtin_convertvector(upper_halves(lanes), Halves);
  std::memcpy(to, &halves, sizeof halves);
}

// What is left of numbers that are kept as a T.
template <typename T>
inline Lanes rounded(Lanes lanes) {
  if constexpr (std::is_same_v<T, float>) return lanes;
  return bits<Lanes>(upper_halves(lanes) << 16);
}

// Calls f(i, read, write) for i = 0, 16, ... below size: read(p) loads sixteen numbers from p + i,
// write(lanes, p) stores them there; where fewer are left, the rest is zero and not stored.
template <typename T, typename F>
inline void for_each_lanes(int64_t size, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    f([&](const T* p) { return load(p + i); }, [&](Lanes lanes, T* p) { store(lanes, p + i); });
  if (i == size) return;
  T buffer[kLanes];
  f(
      [&](const T* p) {
        std::fill_n(buffer, kLanes, T(0.0f));
        std::copy_n(p + i, size - i, buffer);
        return load(buffer);
      },
      [&](Lanes lanes, T* p) {
        store(lanes, buffer);
        std::copy_n(buffer, size - i, p + i);
      });
}

inline float total_of(Lanes lanes) {
  float total = 0.0f;
  for (int i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
}

// exp(x) to about one unit in the last place: 2^n times a polynomial in the rest (Cephes' expf).
inline Lanes exponential(Lanes x) {
  x = x < -87.3f ? Lanes{} - 87.3f : x;
  x = x > 88.3f ? Lanes{} + 88.3f : x;
  const Lanes scaled = x * 1.44269504089f;
  const Integers whole =
      __builtin_convertvector(scaled + (scaled < 0.0f ? Lanes{} - 0.5f : Lanes{} + 0.5f), Integers);
  const Lanes n = __builtin_convertvector(whole, Lanes);
  const Lanes r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes p = Lanes{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r * r + r + 1.0f) * bits<Lanes>((whole + 127) << 23);
}

template <typename T>
void normalise(const T* x, const T* weight, T* out, int64_t size, float eps) {
  Lanes squares = {};
  for_each_lanes<T>(size, [&](auto read, auto) {
    const Lanes lanes = read(x);
    squares += lanes * lanes;
  });
  const float scale = 1.0f / std::sqrt(total_of(squares) / static_cast<float>(size) + eps);
  for_each_lanes<T>(size, [&](auto read, auto write) {
    write(read(weight) * rounded<T>(read(x) * scale), out);
  });
}

// Calls `f` with a value of the tensor's element type.
template <typename F>
void with_type(const at::Tensor& tensor, F&& f) {
  if (tensor.scalar_type() == at::kBFloat16) {
    f(c10::BFloat16());
  } else {
    TORCH_CHECK(tensor.scalar_type() == at::kFloat, "float32 or bfloat16 expected");
    f(float());
  }
}

void check(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.device().is_cpu(), name, " must be on the CPU");
  TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
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

// x + delta, and its normalisation.
std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& delta,
                                                const at::Tensor& weight, double eps) {
  check(x, "x");
  check(delta, "delta");
  check(weight, "weight");
  TORCH_CHECK(x.sizes() == delta.sizes(), "x and delta must have one shape");
  const int64_t size = weight.numel(), rows = x.numel() / size;
  at::Tensor sum = at::empty_like(x), out = at::empty_like(x);
  with_type(x, [&](auto kind) {
    using T = decltype(kind);
    const T* in = x.const_data_ptr<T>();
    const T* more = delta.const_data_ptr<T>();
    const T* w = weight.const_data_ptr<T>();
    T* total = sum.mutable_data_ptr<T>();
    T* result = out.mutable_data_ptr<T>();
    at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / size), [&](int64_t a, int64_t b) {
      for_each_lanes<T>((b - a) * size, [&](auto read, auto write) {
        write(read(in + a * size) + read(more + a * size), total + a * size);
      });
      for (int64_t row = a; row < b; ++row)
        normalise(total + row * size, w, result + row * size, size, static_cast<float>(eps));
    });
  });
  return {sum, out};
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
          const Lanes lanes = read(gate);
          const Lanes activated = rounded<T>(lanes / (1.0f + exponential(-lanes)));
          write(activated * read(up), result + row * size);
        });
      }
    });
  });
  return out;
}

// One head's vector turned by its position: dimension i is paired with i + half.
template <typename T>
void rotate(const T* x, const T* cosine, const T* sine, T* out, int64_t size) {
  const int64_t half = size / 2;
  for_each_lanes<T>(half, [&](auto read, auto write) {
    const Lanes low = read(x), high = read(x + half);
    const Lanes low_part = rounded<T>(low * read(cosine));
    const Lanes high_part = rounded<T>(high * read(cosine + half));
    write(low_part + rounded<T>(-high * read(sine)), out);
    write(high_part + rounded<T>(low * read(sine + half)), out + half);
  });
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
    const float epsilon = static_cast<float>(eps);
    at::parallel_for(0, tokens, std::max<int64_t>(1, kGrain / width), [&](int64_t a, int64_t b) {
      std::vector<T> normed(dim);
      for (int64_t t = a; t < b; ++t) {
        const T* row = in + t * width;
        auto turn = [&](const T* head, const T* norm, T* out) {
          if (norm != nullptr) {
            normalise(head, norm, normed.data(), dim, epsilon);
            head = normed.data();
          }
          rotate(head, c + t * dim, s + t * dim, out, dim);
        };
        for (int64_t h = 0; h < heads; ++h, row += dim)
          turn(row, query_norm, q + (t * heads + h) * dim);
        for (int64_t h = 0; h < kv_heads; ++h, row += dim)
          turn(row, key_norm, k + (place[t] * kv_heads + h) * dim);
        std::copy_n(row, kv_heads * dim, v + place[t] * kv_heads * dim);
      }
    });
  });
  return query;
}

// One request's visible positions in the pool, and how to read them.
struct Context {
  const int64_t* blocks;
  int64_t block_size, first, end;  // positions [first, end)
  int64_t stride;                  // elements from one place to the next
  float scale, softcap;            // softcap: 0 for none
};

// Calls f(index, place, count, ahead) for runs of at most kLanes neighbouring places of the context;
// the next run begins at the place `ahead`.
template <typename F>
inline void for_each_tile(const Context& context, F&& f) {
  int64_t position = context.first;
  while (position < context.end) {
    const int64_t within = position % context.block_size;
    const int64_t left = std::min(context.block_size - within, context.end - position);
    const int64_t place = context.blocks[position / context.block_size] * context.block_size;
    const int64_t count = std::min(left, kLanes);
    const int64_t next = std::min(position + count, context.end - 1);
    const int64_t ahead =
        context.blocks[next / context.block_size] * context.block_size + next % context.block_size;
    f(position - context.first, place + within, count, ahead);
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

// Scores to weights in place, not yet divided by their sum, which is returned.
float soften(float* scores, int64_t length, float softcap) {
  if (softcap > 0.0f)
    for (int64_t i = 0; i < length; ++i) scores[i] = softcap * std::tanh(scores[i] / softcap);
  const float peak = *std::max_element(scores, scores + length);
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

// The sum of each of sixteen vectors, in their order: at every level half of each vector's lanes
// is added to the other half, and two vectors become one.
template <int WIDTH, int... LOW>
inline Lanes folded(Lanes a, Lanes b, std::integer_sequence<int, LOW...>) {
  return __builtin_shufflevector(a, b, LOW...) + __builtin_shufflevector(a, b, (LOW + WIDTH)...);
}

// WIDTH: half the number of lanes that belong to one vector at this level.
template <int WIDTH, typename LOW>
inline void fold(Lanes* rows, LOW low) {
  for (int i = 0; i < WIDTH; ++i) rows[i] = folded<WIDTH>(rows[2 * i], rows[2 * i + 1], low);
}

inline Lanes sums(Lanes* rows) {
  using std::integer_sequence;
  fold<8>(rows, integer_sequence<int, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>());
  fold<4>(rows, integer_sequence<int, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27>());
  fold<2>(rows, integer_sequence<int, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29>());
  fold<1>(rows, integer_sequence<int, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>());
  return rows[0];
}

// N queries of one KV head over its context, heads of kLanes * CHUNKS numbers. `scores` has room for
// N * (end - first + kLanes) numbers.
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

// The same for one query and heads of any size.
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
  std::vector<float> result(dim, 0.0f);
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
  check(rows, "rows");
  check(lengths, "lengths");
  check(starts, "starts");
  check(blocks, "blocks");
  const int64_t heads = query.size(1), dim = query.size(2), kv_heads = keys.size(1);
  TORCH_CHECK(keys.size(2) == dim && values.size(2) == dim && heads % kv_heads == 0,
              "unsupported head sizes");
  const int64_t group = heads / kv_heads, count = rows.numel();
  const int64_t* row = rows.const_data_ptr<int64_t>();
  const int64_t* length = lengths.const_data_ptr<int64_t>();
  const int64_t* start = starts.const_data_ptr<int64_t>();
  const int64_t* block = blocks.const_data_ptr<int64_t>();
  TORCH_CHECK(out.sizes() == query.sizes() && values.sizes() == keys.sizes(),
              "results must have the queries' shape, and values the keys'");
  TORCH_CHECK(lengths.numel() == count && starts.numel() == count,
              "one length and one start a request expected");
  int64_t longest = 0, elements = 0;
  for (int64_t r = 0; r < count; ++r) {
    TORCH_CHECK(row[r] >= 0 && row[r] < query.size(0), "a row lies outside the batch");
    const int64_t used = (length[r] + block_size - 1) / block_size;
    TORCH_CHECK(length[r] > 0 && start[r] >= 0 && start[r] + used <= blocks.numel(),
                "a request's blocks are not all given");
    for (int64_t i = start[r]; i < start[r] + used; ++i)
      TORCH_CHECK(block[i] >= 0 && (block[i] + 1) * block_size <= keys.size(0),
                  "a block lies outside the pool");
    longest = std::max(longest, length[r]);
    elements += length[r] * kv_heads * dim;
  }
  const int64_t items = count * kv_heads;
  const int64_t grain = std::max<int64_t>(1, items * kContextGrain / std::max<int64_t>(1, elements));
  with_type(query, [&](auto kind) {
    using T = decltype(kind);
    const T* q = query.const_data_ptr<T>();
    const T* k = keys.const_data_ptr<T>();
    const T* v = values.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    at::parallel_for(0, items, grain, [&](int64_t a, int64_t b) {
      std::vector<float> scores(4 * (longest + kLanes));
      for (int64_t item = a; item < b; ++item) {
        const int64_t r = item / kv_heads, h = item % kv_heads;
        const Context context{block + start[r],
                              block_size,
                              window > 0 ? std::max<int64_t>(0, length[r] - window) : 0,
                              length[r],
                              kv_heads * dim,
                              static_cast<float>(scale),
                              static_cast<float>(softcap)};
        const int64_t at = (row[r] * heads + h * group) * dim;
        const T* head_k = k + h * dim;
        const T* head_v = v + h * dim;
        switch (dim) {
          case 64:
            attend_group<T, 4>(q + at, head_k, head_v, context, group, scores.data(), to + at);
            break;
          case 128:
            attend_group<T, 8>(q + at, head_k, head_v, context, group, scores.data(), to + at);
            break;
          default:
            for (int64_t i = 0; i < group; ++i)
              attend_any(q + at + i * dim, head_k, head_v, context, dim, scores.data(),
                         to + at + i * dim);
        }
      }
    });
  });
}

}  // namespace

TORCH_LIBRARY(phasescope, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", rms_norm);
  library.def("add_rms_norm(Tensor x, Tensor delta, Tensor weight, float eps) -> (Tensor, Tensor)",
              add_rms_norm);
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
}
