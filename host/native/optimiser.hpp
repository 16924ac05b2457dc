// SPDX-License-Identifier: MIT
// The reduce step on a range of one flat vector: sum of the learners' shares, Adam, averaging.
//
// Cost: O(floats * learners), bound by memory. Limits: Adam's square root and quotient are exact to
// about 3e-7 relative. Elements never look at each other, so any cut into ranges gives the same
// bits. Thread-safety: pure on its range.
//
//   g = (share 0 + share 1 + ...) * scale        Kingma and Ba 2015, Algorithm 1, with
//   m += (1 - b1) (g - m)                        lr_c1 = lr / (1 - b1^t)
//   v  = b2 v + (1 - b2) g^2                     inv_sqrt_c2 = 1 / sqrt(1 - b2^t)
//   p -= lr_c1 m / (sqrt(v) inv_sqrt_c2 + eps)
//   t += tau (p - t)                             where a target follows
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "gemm_avx512.hpp"
#include "program.hpp"

namespace copal {

struct AdamStep {
  float beta1, beta2, keep1, keep2, lr_c1, inv_sqrt_c2, eps;

  // Constants of step `t` = 1, 2, ...
  static AdamStep of(const AdamSettings& a, uint64_t t) {
    const double c1 = 1 - std::pow(a.beta1, static_cast<double>(t));
    const double c2 = 1 - std::pow(a.beta2, static_cast<double>(t));
    return {static_cast<float>(a.beta1),
            static_cast<float>(a.beta2),
            static_cast<float>(1 - a.beta1),
            static_cast<float>(1 - a.beta2),
            static_cast<float>(a.learning_rate / c1),
            static_cast<float>(1 / std::sqrt(c2)),
            static_cast<float>(a.eps)};
  }
};

// Where a reduce step reads and writes; every vector is padded to a multiple of 16 floats.
struct ReduceTarget {
  float *p, *m, *v;
  float* follower = nullptr;  // a target network averaged in the same pass
  float tau = 0;
};

inline float summed(const float* const* shares, size_t count, size_t i) {
  float g = shares[0][i];
  for (size_t l = 1; l < count; ++l) g += shares[l][i];
  return g;
}

#ifdef COPAL_OWN_GEMM

inline void adam_range(const float* const* shares, size_t count, float scale,
                       const ReduceTarget& to, const AdamStep& k, size_t first, size_t last) {
  using avx512::Vec;
  auto all = [](float x) { return _mm512_set1_ps(x); };
  const Vec eps = all(k.eps), keep1 = all(k.keep1), keep2 = all(k.keep2), beta2 = all(k.beta2);
  for (size_t i = first; i < last; i += 16) {
    Vec g = _mm512_load_ps(shares[0] + i);
    for (size_t l = 1; l < count; ++l) g = _mm512_add_ps(g, _mm512_load_ps(shares[l] + i));
    g = _mm512_mul_ps(g, all(scale));
    Vec m = _mm512_load_ps(to.m + i), v = _mm512_load_ps(to.v + i), p = _mm512_load_ps(to.p + i);
    m = _mm512_fmadd_ps(keep1, _mm512_sub_ps(g, m), m);
    v = _mm512_fmadd_ps(_mm512_mul_ps(g, g), keep2, _mm512_mul_ps(beta2, v));
    // Reciprocal estimates of 14 bits and one Newton step: no divider, no square root unit.
    const __mmask16 positive = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ);
    Vec r = _mm512_maskz_rsqrt14_ps(positive, v);
    r = _mm512_mul_ps(
        r, _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_mul_ps(v, r), r), all(0.5f), all(1.5f)));
    const Vec den = _mm512_fmadd_ps(_mm512_mul_ps(v, r), all(k.inv_sqrt_c2), eps);
    Vec q = _mm512_rcp14_ps(den);
    q = _mm512_mul_ps(q, _mm512_fnmadd_ps(den, q, all(2.f)));
    p = _mm512_fnmadd_ps(_mm512_mul_ps(m, q), all(k.lr_c1), p);
    _mm512_store_ps(to.m + i, m), _mm512_store_ps(to.v + i, v), _mm512_store_ps(to.p + i, p);
    if (to.follower) {
      const Vec t = _mm512_load_ps(to.follower + i);
      _mm512_store_ps(to.follower + i, _mm512_fmadd_ps(all(to.tau), _mm512_sub_ps(p, t), t));
    }
  }
}

#else

inline void adam_range(const float* const* shares, size_t count, float scale,
                       const ReduceTarget& to, const AdamStep& k, size_t first, size_t last) {
  float* __restrict p = to.p;
  float* __restrict m = to.m;
  float* __restrict v = to.v;
  constexpr size_t kChunk = 64;
  for (size_t base = first; base < last; base += kChunk) {
    const size_t n = last - base < kChunk ? last - base : kChunk;
    float g[kChunk];
    for (size_t i = 0; i < n; ++i) g[i] = shares[0][base + i];
    for (size_t l = 1; l < count; ++l)
      for (size_t i = 0; i < n; ++i) g[i] += shares[l][base + i];
    for (size_t i = 0; i < n; ++i) {
      const size_t at = base + i;
      const float x = g[i] * scale;
      m[at] += k.keep1 * (x - m[at]);
      v[at] = k.beta2 * v[at] + k.keep2 * (x * x);
      p[at] -= k.lr_c1 * m[at] / (std::sqrt(v[at]) * k.inv_sqrt_c2 + k.eps);
    }
    if (to.follower)
      for (size_t i = 0; i < n; ++i)
        to.follower[base + i] += to.tau * (p[base + i] - to.follower[base + i]);
  }
}

#endif

// target += tau (source - target); tau 1 copies exactly.
inline void average_range(float* target, const float* source, float tau, size_t first,
                          size_t last) {
  if (tau == 1.f) {
    for (size_t i = first; i < last; ++i) target[i] = source[i];
  } else {
    for (size_t i = first; i < last; ++i) target[i] += tau * (source[i] - target[i]);
  }
}

// Sum of squares in a fixed order, lane by lane; not finite if any element is not.
inline double sum_of_squares(const float* const* shares, size_t count, size_t first, size_t last) {
  double total = 0;
  constexpr size_t kChunk = 1024;
  for (size_t base = first; base < last; base += kChunk) {
    const size_t end = last - base < kChunk ? last : base + kChunk;
    float lanes[64] = {};
    size_t i = base;
    if (count == 1) {
      for (; i + 64 <= end; i += 64)
        for (size_t j = 0; j < 64; ++j) lanes[j] += shares[0][i + j] * shares[0][i + j];
    }
    for (; i < end; ++i) {
      const float x = summed(shares, count, i);
      lanes[i % 64] += x * x;
    }
    for (float x : lanes) total += x;
  }
  return total;
}

}  // namespace copal
