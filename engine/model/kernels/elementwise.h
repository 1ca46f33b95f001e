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

// silu(gate) * up.
template <typename T>
inline Lanes gated(Lanes gate, Lanes up) {
  return rounded<T>(quotient_as<T>(gate, 1.0f + exponential_as<T>(-gate))) * up;
}

}  // namespace phasescope
