// Products of activations with a layer's weights, 32 outputs at a time.
//
// Weights lie in panels of 16 outputs. float32: a panel is its rows, as torch keeps them, and sums
// run in vectors. bfloat16: a panel is laid out for AMX, whose tiles take 32 inputs of 16 outputs
// from a kilobyte of neighbouring memory, so that decoding reads the weights as one stream.

#pragma once

#include <cstdint>

// Some virtual machines pass on the tiles without the instructions that go with them.
#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PHASESCOPE_AMX 1
#else
#define PHASESCOPE_AMX 0
#endif

#include "lanes.h"

namespace phasescope {

constexpr int64_t kPanel = 16;      // outputs
constexpr int64_t kTileInputs = 32;  // inputs of a bfloat16 panel that one tile takes

// Weights of `outputs` x `inputs` in panels, and a bias or null.
template <typename T>
struct Weights {
  const T* panels;
  const T* bias;
  int64_t outputs, inputs;

  const T* panel(int64_t index) const { return panels + index * kPanel * inputs; }
  Lanes bias_of(int64_t index) const {
    return bias == nullptr ? Lanes{} : load(bias + index * kPanel);
  }
};

// Activations [rows, inputs], `stride` numbers from one row to the next.
template <typename T>
struct Rows {
  T* data;
  int64_t count, stride;

  T* operator[](int64_t row) const { return data + row * stride; }
  Rows from(int64_t row) const { return {data + row * stride, count - row, stride}; }
};

// A stride for rows of `width` numbers. Rows an even number of cache lines apart would share few
// places of the cache; these lie an odd number apart.
template <typename T>
inline int64_t stride_of(int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  return ((width + kLine - 1) / kLine | 1) * kLine;
}

// The first ROWS rows of x times two panels. `done(row, low, high)` takes each row's sums.
template <int ROWS, typename F>
void multiply_rows(Rows<const float> x, int64_t inputs, const float* low, const float* high,
                   F&& done) {
  constexpr int kOutputs = 4;
  float results[ROWS][2 * kPanel];
  for (int64_t first = 0; first < 2 * kPanel; first += kOutputs) {
    const float* weights = (first < kPanel ? low : high) + first % kPanel * inputs;
    Lanes products[16] = {};
    for (int64_t i = 0; i < inputs; i += kLanes) {
      Lanes w[kOutputs];
      for (int o = 0; o < kOutputs; ++o) w[o] = load(weights + o * inputs + i);
      for (int r = 0; r < ROWS; ++r) {
        const Lanes lanes = load(x[r] + i);
        for (int o = 0; o < kOutputs; ++o) products[r * kOutputs + o] += lanes * w[o];
      }
    }
    const Lanes totals = sums(products);
    for (int r = 0; r < ROWS; ++r)
      for (int o = 0; o < kOutputs; ++o) results[r][first + o] = totals[r * kOutputs + o];
  }
  for (int r = 0; r < ROWS; ++r) done(r, load(results[r]), load(results[r] + kPanel));
}

// All rows of x times two panels: `done(row, low, high)` takes each row's 32 sums. Inputs must be a
// multiple of 16.
template <typename F>
void multiply(Rows<const float> x, int64_t inputs, const float* low, const float* high, F&& done) {
  int64_t row = 0;
  auto next = [&](int64_t r, Lanes a, Lanes b) { done(row + r, a, b); };
  for (; row + 4 <= x.count; row += 4) multiply_rows<4>(x.from(row), inputs, low, high, next);
  const Rows<const float> rest = x.from(row);
  if (rest.count == 3) multiply_rows<3>(rest, inputs, low, high, next);
  if (rest.count == 2) multiply_rows<2>(rest, inputs, low, high, next);
  if (rest.count == 1) multiply_rows<1>(rest, inputs, low, high, next);
}

#if PHASESCOPE_AMX

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileNumbers = kPanel * kTileInputs;  // of a panel
constexpr int64_t kTileBytes = 1024;

// What `ldtilecfg` reads: bytes a row and rows of each of the eight tiles.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};

// Asks the system for the tiles once; false where it refuses.
inline bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
}

// Tiles 0 and 1 hold the sums of the first rows, 2 and 3 of the second; 4 and 5 these rows of x;
// 6 and 7 a piece of the two panels.
inline void shape_tiles(int64_t first, int64_t second) {
  TileShapes shapes;
  for (int tile : {0, 1, 4}) shapes.rows[tile] = static_cast<uint8_t>(first);
  for (int tile : {2, 3, 5}) shapes.rows[tile] = static_cast<uint8_t>(second > 0 ? second : 1);
  for (int tile : {6, 7}) shapes.rows[tile] = kTileRows;
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

// The sums of 16 or 32 rows. AHEAD: how many bytes before their use weights are fetched; 0: they
// are in the caches already.
template <bool BOTH, int64_t AHEAD, typename F>
void multiply_tiles(Rows<const c10::BFloat16> x, int64_t first, int64_t second, int64_t inputs,
                    const c10::BFloat16* low, const c10::BFloat16* high, F&& done) {
  const int64_t stride = x.stride * static_cast<int64_t>(sizeof *low);
  const c10::BFloat16* rows = x[0];
  const c10::BFloat16* more = x[kTileRows];
  asm volatile("" : : : "memory");  // tile loads do not tell the compiler what they read
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (BOTH) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < inputs; i += kTileInputs) {
    if constexpr (AHEAD > 0)
      for (int64_t line = 0; line < kTileBytes; line += 64) {
        __builtin_prefetch(reinterpret_cast<const char*>(low) + AHEAD + line);
        __builtin_prefetch(reinterpret_cast<const char*>(high) + AHEAD + line);
      }
    _tile_loadd(4, rows + i, stride);
    _tile_loadd(6, low, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, high, 64);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (BOTH) {
      _tile_loadd(5, more + i, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    low += kTileNumbers;
    high += kTileNumbers;
  }
  alignas(64) float sums_of[4][kTileRows * kPanel];
  _tile_stored(0, sums_of[0], 64);
  _tile_stored(1, sums_of[1], 64);
  if constexpr (BOTH) {
    _tile_stored(2, sums_of[2], 64);
    _tile_stored(3, sums_of[3], 64);
  }
  asm volatile("" : : : "memory");
  for (int64_t r = 0; r < first; ++r)
    done(r, load(sums_of[0] + r * kPanel), load(sums_of[1] + r * kPanel));
  if constexpr (BOTH)
    for (int64_t r = 0; r < second; ++r)
      done(kTileRows + r, load(sums_of[2] + r * kPanel), load(sums_of[3] + r * kPanel));
}

// As above; inputs must be a multiple of 32, and the system must have granted the tiles.
template <typename F>
void multiply(Rows<const c10::BFloat16> x, int64_t inputs, const c10::BFloat16* low,
              const c10::BFloat16* high, F&& done) {
  constexpr int64_t kAhead = 2 * kTileBytes;
  int64_t shaped = 0;
  for (int64_t row = 0; row < x.count; row += 2 * kTileRows) {
    const int64_t count = std::min(x.count - row, 2 * kTileRows);
    const int64_t first = std::min(count, kTileRows), second = count - first;
    if (shaped != count) shape_tiles(first, second);
    shaped = count;
    const Rows<const c10::BFloat16> from = x.from(row);
    auto next = [&](int64_t r, Lanes a, Lanes b) { done(row + r, a, b); };
    if (row > 0) {
      if (second > 0)
        multiply_tiles<true, 0>(from, first, second, inputs, low, high, next);
      else
        multiply_tiles<false, 0>(from, first, second, inputs, low, high, next);
    } else if (second > 0) {
      multiply_tiles<true, kAhead>(from, first, second, inputs, low, high, next);
    } else {
      multiply_tiles<false, kAhead>(from, first, second, inputs, low, high, next);
    }
  }
  _tile_release();
}

#endif

}  // namespace phasescope
