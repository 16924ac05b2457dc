// SPDX-License-Identifier: MIT
// Sums, maxima and choices within one group of K siblings of the tree.
//
// Cost: O(K), with AVX-512 or AVX2 O(K / 16) where K allows. Limits: K a power of two, 2 to 64,
// values finite and at least 0. Stateless. The instruction set is that of the compiler's flags.
//
//   group   | v0 | v1    | ... | vK-1 |     pick(mass): the first child with v > 0 whose inclusive
//   prefix  | v0 | v0+v1 | ... | sum  |     prefix exceeds mass, else the last one with v > 0
//
// The mask of positive children makes the choice safe however prefixes or mass are rounded.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace copal {

inline unsigned choose(uint64_t above, uint64_t positive) {
  const uint64_t both = above & positive;
  if (both) [[likely]]
    return std::countr_zero(both);
  return positive ? 63 - std::countl_zero(positive) : 0;
}

// ---- any K: plain loops of constant length, which compilers vectorise on any processor

template <int K>
inline float sum_plain(const float* g) {
  constexpr int kLanes = std::min(K, 4);
  float s[kLanes] = {};
  for (int i = 0; i < K; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) s[j] += g[i + j];
  }
  if constexpr (kLanes == 4) return (s[0] + s[2]) + (s[1] + s[3]);
  return s[0] + s[1];
}

template <int K>
inline float max_plain(const float* g) {
  constexpr int kLanes = std::min(K, 4);
  float s[kLanes] = {};
  for (int i = 0; i < K; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) s[j] = std::max(s[j], g[i + j]);
  }
  float m = std::max(s[0], s[1]);
  if constexpr (kLanes == 4) m = std::max(m, std::max(s[2], s[3]));
  return m;
}

template <int K>
inline unsigned pick_plain(const float* g, double& mass) {
  const float m = static_cast<float>(mass);
  float sum = 0, before[K];
  uint64_t above = 0, positive = 0;
  for (int i = 0; i < K; ++i) {
    before[i] = sum;
    sum += g[i];
    above |= static_cast<uint64_t>(sum > m) << i;
    positive |= static_cast<uint64_t>(g[i] > 0) << i;
  }
  const unsigned i = choose(above, positive);
  mass -= before[i];
  return i;
}

// ---- K = 16, one cache line

#if defined(__AVX512F__) && defined(__AVX512DQ__)

inline float sum16(const float* g) { return _mm512_reduce_add_ps(_mm512_load_ps(g)); }
inline float max16(const float* g) { return _mm512_reduce_max_ps(_mm512_load_ps(g)); }

template <int N>
inline __m512 shift_up(__m512 v) {
  return _mm512_castsi512_ps(
      _mm512_alignr_epi32(_mm512_castps_si512(v), _mm512_setzero_si512(), 16 - N));
}

inline unsigned pick16(const float* g, double& mass) {
  alignas(64) float prefix[32];
  prefix[15] = 0.f;
  const __m512 x = _mm512_load_ps(g), m = _mm512_set1_ps(static_cast<float>(mass));
  __m512 s = _mm512_add_ps(x, shift_up<1>(x));
  s = _mm512_add_ps(s, shift_up<2>(s));
  s = _mm512_add_ps(s, shift_up<4>(s));
  s = _mm512_add_ps(s, shift_up<8>(s));
  _mm512_store_ps(prefix + 16, s);
  const unsigned i = choose(_mm512_cmp_ps_mask(s, m, _CMP_GT_OQ),
                            _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ));
  mass -= prefix[15 + i];
  return i;
}

#elif defined(__AVX2__)

inline float sum16(const float* g) {
  const __m256 s = _mm256_add_ps(_mm256_load_ps(g), _mm256_load_ps(g + 8));
  __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  t = _mm_add_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
inline float max16(const float* g) {
  const __m256 s = _mm256_max_ps(_mm256_load_ps(g), _mm256_load_ps(g + 8));
  __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  t = _mm_max_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

inline __m256 prefix8(__m256 v) {
  v = _mm256_add_ps(v, _mm256_castsi256_ps(_mm256_slli_si256(_mm256_castps_si256(v), 4)));
  v = _mm256_add_ps(v, _mm256_castsi256_ps(_mm256_slli_si256(_mm256_castps_si256(v), 8)));
  const __m256 low = _mm256_permute2f128_ps(v, v, 0x08);
  return _mm256_add_ps(v, _mm256_shuffle_ps(low, low, 0xff));
}

inline unsigned pick16(const float* g, double& mass) {
  alignas(64) float prefix[32];
  prefix[15] = 0.f;
  const __m256 m = _mm256_set1_ps(static_cast<float>(mass)), zero = _mm256_setzero_ps();
  const __m256 xa = _mm256_load_ps(g), xb = _mm256_load_ps(g + 8);
  const __m256 a = prefix8(xa);
  const __m256 b = _mm256_add_ps(prefix8(xb), _mm256_permutevar8x32_ps(a, _mm256_set1_epi32(7)));
  _mm256_store_ps(prefix + 16, a);
  _mm256_store_ps(prefix + 24, b);
  const auto mask = [](__m256 x, __m256 y) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_GT_OQ)));
  };
  const unsigned i = choose(mask(a, m) | mask(b, m) << 8, mask(xa, zero) | mask(xb, zero) << 8);
  mass -= prefix[15 + i];
  return i;
}

#else

inline float sum16(const float* g) { return sum_plain<16>(g); }
inline float max16(const float* g) { return max_plain<16>(g); }
inline unsigned pick16(const float* g, double& mass) { return pick_plain<16>(g, mass); }

#endif

// ---- the choice by K: 16 directly, larger ones as lines of 16, smaller ones plainly

template <int K>
inline float sum_group(const float* g) {
  if constexpr (K < 16) {
    return sum_plain<K>(g);
  } else {
    float s = sum16(g);
    for (int i = 16; i < K; i += 16) s += sum16(g + i);
    return s;
  }
}

template <int K>
inline float max_group(const float* g) {
  if constexpr (K < 16) {
    return max_plain<K>(g);
  } else {
    float m = max16(g);
    for (int i = 16; i < K; i += 16) m = std::max(m, max16(g + i));
    return m;
  }
}

// Child of `g` that holds `mass`, from which the prefix before that child is taken away.
template <int K>
inline unsigned pick_group(const float* g, double& mass) {
  if constexpr (K < 16) {
    return pick_plain<K>(g, mass);
  } else if constexpr (K == 16) {
    return pick16(g, mass);
  } else {
    float line[K / 16];
    for (int i = 0; i < K / 16; ++i) line[i] = sum16(g + i * 16);
    const unsigned i = pick_plain<K / 16>(line, mass);
    return i * 16 + pick16(g + i * 16, mass);
  }
}

}  // namespace copal
