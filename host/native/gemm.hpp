// SPDX-License-Identifier: MIT
// Chooses between the two implementations of the dense products.
//
// Cost: one branch a product. Limits: those of the implementations. Thread-safety: pure.
//
//   GemmKind::kOwn    register tiles, where the module was built for AVX-512
//   GemmKind::kEigen  everywhere
#pragma once
#include <string>

#include "errors.hpp"
#include "gemm_avx512.hpp"
#include "gemm_eigen.hpp"

namespace copal {

enum class GemmKind { kOwn, kEigen };

#ifdef COPAL_OWN_GEMM
inline constexpr bool kHasOwnGemm = true;
#else
inline constexpr bool kHasOwnGemm = false;
#endif

// `auto`, `own` or `eigen`. Throws ConfigError.
inline GemmKind gemm_kind(const std::string& name) {
  if (name == "auto") return kHasOwnGemm ? GemmKind::kOwn : GemmKind::kEigen;
  if (name == "eigen") return GemmKind::kEigen;
  if (name == "own" && kHasOwnGemm) return GemmKind::kOwn;
  throw Error("ConfigError", "gemm", kHasOwnGemm ? "`auto`, `own` or `eigen`" : "`auto` or `eigen`",
              "`" + name + "`", name == "own" ? "`own` needs AVX-512" : "");
}

namespace gemm {

inline void forward(GemmKind kind, size_t m, size_t kc, size_t nb, const float* w,
                    const float* bias, bool relu, const float* x, float* out) {
#ifdef COPAL_OWN_GEMM
  if (kind == GemmKind::kOwn) {
    switch (nb) {
      case 64:
        return avx512::forward<4>(m, kc, w, bias, relu, x, out);
      case 32:
        return avx512::forward<2>(m, kc, w, bias, relu, x, out);
      case 16:
        return avx512::forward<1>(m, kc, w, bias, relu, x, out);
      default:
        return avx512::matvec(m, kc, w, bias, relu, x, out);
    }
  }
#endif
  (void)kind;
  eigen::forward(m, kc, nb, w, bias, relu, x, out);
}

inline void grad_input(GemmKind kind, size_t m, size_t kc, size_t nb, const float* w,
                       const float* d, const float* active, float* out) {
#ifdef COPAL_OWN_GEMM
  if (kind == GemmKind::kOwn && nb >= 16) {
    switch (nb) {
      case 64:
        return avx512::grad_input<4>(m, kc, w, d, active, out);
      case 32:
        return avx512::grad_input<2>(m, kc, w, d, active, out);
      default:
        return avx512::grad_input<1>(m, kc, w, d, active, out);
    }
  }
#endif
  (void)kind;
  eigen::grad_input(m, kc, nb, w, d, active, out);
}

// sums[i] = (or +=) the sum over the real rows of d[i], in order of the segments.
inline void sum_rows(const Segment* segments, size_t count, size_t m, float* sums, bool add) {
#ifdef COPAL_OWN_GEMM
  avx512::sum_rows(segments, count, m, sums, add);
#else
  for (size_t i = 0; i < m; ++i) {
    float lanes[8] = {};
    for (size_t s = 0; s < count; ++s) {
      const float* d = segments[s].data + i * segments[s].nb;
      size_t k = 0;
      for (; k + 8 <= segments[s].rows; k += 8)
        for (size_t j = 0; j < 8; ++j) lanes[j] += d[k + j];
      for (; k < segments[s].rows; ++k) lanes[k % 8] += d[k];
    }
    float sum = 0;
    for (float x : lanes) sum += x;
    sums[i] = add ? sums[i] + sum : sum;
  }
#endif
}

}  // namespace gemm
}  // namespace copal
