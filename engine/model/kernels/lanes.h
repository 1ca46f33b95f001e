// Sixteen numbers at a time, in one register or in as many as the processor needs, and what is
// computed with them. Arithmetic is in float32, whatever the numbers are kept as.

#pragma once

#include <c10/util/BFloat16.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace phasescope {

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

// Numbers in memory that begins with a cache line: what straddles two takes twice as long to read.
template <typename T>
class Numbers {
 public:
  explicit Numbers(int64_t count) : lines_((count * sizeof(T) + sizeof(Line) - 1) / sizeof(Line)) {}

  T* data() { return reinterpret_cast<T*>(lines_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(lines_.data()); }
  T& operator[](int64_t index) { return data()[index]; }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> lines_;
};

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

inline Halves halves_of(Lanes lanes) {
#if defined(__AVX512BF16__)
  return bits<Halves>(_mm512_cvtneps_pbh(bits<__m512>(lanes)));
#else
  return __builtin_convertvector(upper_halves(lanes), Halves);
#endif
}

inline void store(Lanes lanes, c10::BFloat16* to) {
  const Halves halves = halves_of(lanes);
  std::memcpy(to, &halves, sizeof halves);
}

// What is left of numbers that are kept as a T.
template <typename T>
inline Lanes rounded(Lanes lanes) {
  if constexpr (std::is_same_v<T, float>) return lanes;
  return bits<Lanes>(__builtin_convertvector(halves_of(lanes), Words) << 16);
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

// exp(x), x finite, as precise as numbers that are kept as a T.
template <typename T>
inline Lanes exponential_as(Lanes x) {
#if defined(__AVX512F__)
  if constexpr (!std::is_same_v<T, float>) {
    // 2^n times the first terms of 2^rest: off by less than one part in 17,000.
    const __m512 scaled = bits<__m512>(x * 1.44269504f);
    const __m512 n = _mm512_roundscale_ps(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Lanes r = bits<Lanes>(scaled) - bits<Lanes>(n);
    Lanes p = Lanes{} + 9.61812911e-3f;
    p = p * r + 5.55041087e-2f;
    p = p * r + 2.40226507e-1f;
    p = p * r + 6.93147181e-1f;
    return bits<Lanes>(_mm512_scalef_ps(bits<__m512>(p * r + 1.0f), n));
  }
#endif
  return exponential(x);
}

// x / y, as precise as numbers that are kept as a T.
template <typename T>
inline Lanes quotient_as(Lanes x, Lanes y) {
#if defined(__AVX512F__)
  if constexpr (!std::is_same_v<T, float>) return x * bits<Lanes>(_mm512_rcp14_ps(bits<__m512>(y)));
#endif
  return x / y;
}

}  // namespace phasescope
