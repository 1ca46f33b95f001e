// What the operators ask of the tensors that they are given.

#pragma once

#include <ATen/ATen.h>

namespace phasescope {

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

inline void check(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.device().is_cpu(), name, " must be on the CPU");
  TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
}

}  // namespace phasescope
