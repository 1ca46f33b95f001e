// How a model's queries, keys and values are split into heads, and where a layer keeps the latter.

#pragma once

#include <cstdint>

namespace phasescope {

// softcap: 0 for none.
struct Heads {
  int64_t count, kv_count, dim;
  float scale, softcap;

  int64_t group() const { return count / kv_count; }
  int64_t width() const { return (count + 2 * kv_count) * dim; }  // of queries, keys and values
  int64_t kv_stride() const { return kv_count * dim; }            // from one place to the next
};

// One layer's keys and values [places, kv_heads, dim], and how far back it sees (0: all).
template <typename T>
struct Pool {
  T *keys, *values;
  int64_t window;
};

}  // namespace phasescope
