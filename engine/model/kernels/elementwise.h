// What a layer does to each token's numbers between its products.
//
// Where transformers' modules round to the tensors' own type in between, so does this: the logits
// must stay what the modules give.

#pragma once

#include <cmath>

#include "lanes.h"

namespace phasescope {

// RMS norm of `size` numbers.
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

// How a token's queries and keys are turned; the norms are null where there are none.
template <typename T>
struct Turn {
  int64_t heads, kv_heads, dim;
  const T *query_norm, *key_norm;
  float eps;
};

// One token's row of qkv: queries and keys, normalised and rotated, and values go where they
// belong. queries may be the row's own; scratch has room for one head.
template <typename T>
void turn_token(const Turn<T>& how, const T* row, const T* cosine, const T* sine, T* scratch,
                T* queries, T* keys, T* values) {
  auto turn = [&](const T* norm, T* out) {
    if (norm != nullptr)
      normalise(row, norm, scratch, how.dim, how.eps);
    else
      std::copy_n(row, how.dim, scratch);
    rotate(scratch, cosine, sine, out, how.dim);
    row += how.dim;
  };
  for (int64_t h = 0; h < how.heads; ++h) turn(how.query_norm, queries + h * how.dim);
  for (int64_t h = 0; h < how.kv_heads; ++h) turn(how.key_norm, keys + h * how.dim);
  std::copy_n(row, how.kv_heads * how.dim, values);
}

// silu(gate) * up.
template <typename T>
inline Lanes gated(Lanes gate, Lanes up) {
  return rounded<T>(quotient_as<T>(gate, 1.0f + exponential_as<T>(-gate))) * up;
}

}  // namespace phasescope
