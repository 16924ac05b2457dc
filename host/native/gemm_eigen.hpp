// SPDX-License-Identifier: MIT
// The same dense products over Eigen: for every processor that has no AVX-512, Arm included.
//
// Cost: 2 m n k operations and Eigen's packing. Limits: as gemm_avx512.hpp; the order of a sum is
// Eigen's, fixed for given sizes. Thread-safety: pure (Eigen is built without its own threads).
//
//   forward W X      input gradient W^T D      weight gradient D Y^T      row-major maps, no copy
#pragma once
#include <Eigen/Core>
#include <cstddef>

#include "segment.hpp"

namespace copal::eigen {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Out = Eigen::Map<Matrix>;
using In = Eigen::Map<const Matrix>;
using Strided = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
using Index = Eigen::Index;

inline Index index(size_t n) { return static_cast<Index>(n); }

// See avx512::forward.
inline void forward(size_t m, size_t kc, size_t nb, const float* w, const float* bias, bool relu,
                    const float* x, float* out) {
  const In weights(w, index(m), index(kc));
  if (nb == 1) {
    Eigen::Map<Eigen::VectorXf>(out, index(m)).noalias() =
        weights * Eigen::Map<const Eigen::VectorXf>(x, index(kc));
  } else {
    Out(out, index(m), index(nb)).noalias() = weights * In(x, index(kc), index(nb));
  }
  const float low = relu ? 0.f : -__builtin_inff();
  for (size_t i = 0; i < m; ++i) {
    const float b = bias ? bias[i] : 0.f;
    for (size_t j = 0; j < nb; ++j) {
      const float c = out[i * nb + j] + b;
      out[i * nb + j] = c < low ? low : c;
    }
  }
}

// See avx512::grad_input.
inline void grad_input(size_t m, size_t kc, size_t nb, const float* w, const float* d,
                       const float* active, float* out) {
  Out(out, index(m), index(nb)).noalias() =
      In(w, index(kc), index(m)).transpose() * In(d, index(kc), index(nb));
  if (!active) return;
  for (size_t i = 0; i < m * nb; ++i) out[i] = active[i] > 0 ? out[i] : 0.f;
}

// See avx512::grad_weight; y is kept by blocks like d.
inline void grad_weight(const Segment* d, const Segment* y, size_t count, size_t m, size_t n,
                        float* g, bool add) {
  Out out(g, index(m), index(n));
  if (!add) out.setZero();
  for (size_t i = 0; i < count; ++i) {
    const Eigen::OuterStride<> stride(index(d[i].nb));
    out.noalias() += Strided(d[i].data, index(m), index(d[i].rows), stride) *
                     Strided(y[i].data, index(n), index(y[i].rows), stride).transpose();
  }
}

}  // namespace copal::eigen
