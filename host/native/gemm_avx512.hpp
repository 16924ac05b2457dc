// SPDX-License-Identifier: MIT
// Dense products for AVX-512 on feature-major activations, in register tiles and without packing.
//
// X is [features][NB], so a weight matrix W [out][in] is the broadcast operand, in its own layout,
// of both W X and W^T D; only a layer's input is transposed once, for the weight gradient.
//
//   C tile: MR rows x NV vectors of 16          6 x 4, 12 x 2 or 16 x 1 accumulators
//     for k:  load NV vectors of B, broadcast MR values of A, MR * NV fused multiply-adds
//
// Cost: 2 m n k operations. Limits: any m, n, k; NB a multiple of 16 of at most 64; buffers on
// 64-byte lines, weights anywhere. Sums run over k in order, one rounding a term. Thread-safety:
// pure.
#pragma once
#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define COPAL_OWN_GEMM 1
#include <immintrin.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "segment.hpp"

namespace copal::avx512 {

using Vec = __m512;

inline __mmask16 lanes(size_t n) {
  return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1);
}

// C(r, v) = init(r) + sum over k < kc of A(r, k) B[k][v]; then store(r, v, C).
// A(r, k) is a[r * as + k] if kRows, else a[k * as + r].
template <int MR, int NV, bool kRows, class Init, class Store>
[[gnu::always_inline]] inline void tile(size_t kc, const float* a, ptrdiff_t as, const float* b,
                                        Init&& init, Store&& store) {
  Vec c[MR][NV];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    const Vec start = init(r);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) c[r][v] = start;
  }
#pragma GCC unroll 2
  for (size_t k = 0; k < kc; ++k) {
    Vec x[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) x[v] = _mm512_load_ps(b + v * 16);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const Vec w = _mm512_set1_ps(kRows ? a[r * as] : a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] = _mm512_fmadd_ps(w, x[v], c[r][v]);
    }
    a += kRows ? 1 : as;
    b += NV * 16;
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(r, v, c[r][v]);
}

template <int NV>
constexpr int tile_rows() {
  return NV == 4 ? 6 : NV == 2 ? 12 : NV == 1 ? 16 : 8;
}

// Calls f<R>(first row) so that tiles of MR, then 4, 2 and 1 rows cover m rows.
template <int MR, class F>
[[gnu::always_inline]] inline void row_tiles(size_t m, F&& f) {
  size_t i = 0;
  auto cover = [&]<int R>(std::integral_constant<int, R> rows) {
    for (; i + R <= m; i += R) f(rows, i);
  };
  cover(std::integral_constant<int, MR>{});
  if constexpr (MR > 8) cover(std::integral_constant<int, 8>{});
  cover(std::integral_constant<int, 4>{});
  cover(std::integral_constant<int, 2>{});
  cover(std::integral_constant<int, 1>{});
}

// out [m][NB] = W [m][kc] x [kc][NB] + bias, clipped at 0 if `relu`. NaN stays NaN.
template <int NV>
void forward(size_t m, size_t kc, const float* w, const float* bias, bool relu, const float* x,
             float* out) {
  const Vec low = _mm512_set1_ps(relu ? 0.f : -__builtin_inff());
  row_tiles<tile_rows<NV>()>(m, [&]<int R>(std::integral_constant<int, R>, size_t i) {
    tile<R, NV, true>(
        kc, w + i * kc, static_cast<ptrdiff_t>(kc), x,
        [&](int r) { return bias ? _mm512_set1_ps(bias[i + r]) : _mm512_setzero_ps(); },
        [&](int r, int v, Vec c) {
          _mm512_store_ps(out + (i + r) * NV * 16 + v * 16, _mm512_max_ps(low, c));
        });
  });
}

// out [m][NB] = W^T d for W [kc][m]; where `active` is given, 0 unless active > 0.
template <int NV>
void grad_input(size_t m, size_t kc, const float* w, const float* d, const float* active,
                float* out) {
  row_tiles<tile_rows<NV>()>(m, [&]<int R>(std::integral_constant<int, R>, size_t i) {
    tile<R, NV, false>(
        kc, w + i, static_cast<ptrdiff_t>(m), d, [](int) { return _mm512_setzero_ps(); },
        [&](int r, int v, Vec c) {
          const size_t at = (i + r) * NV * 16 + v * 16;
          __mmask16 on = 0xffff;
          if (active)
            on = _mm512_cmp_ps_mask(_mm512_load_ps(active + at), _mm512_setzero_ps(), _CMP_GT_OQ);
          _mm512_store_ps(out + at, _mm512_maskz_mov_ps(on, c));
        });
  });
}

// One tile of a weight gradient: the sum runs over the real rows of every segment in turn.
template <int MR, int NV, class Store>
[[gnu::always_inline]] inline void grad_tile(const Segment* segments, size_t count, size_t row,
                                             const float* panel, Store&& store) {
  Vec c[MR][NV];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) c[r][v] = _mm512_setzero_ps();
  auto sum = [&]<int NB>(std::integral_constant<int, NB>, const Segment& s) {
    const float* a = s.data + row * NB;
#pragma GCC unroll 2
    for (size_t k = 0; k < s.rows; ++k, ++a, panel += NV * 16) {
      Vec x[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) x[v] = _mm512_load_ps(panel + v * 16);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        const Vec w = _mm512_set1_ps(a[r * NB]);
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) c[r][v] = _mm512_fmadd_ps(w, x[v], c[r][v]);
      }
    }
  };
  for (size_t i = 0; i < count; ++i) {
    if (segments[i].nb == 64)
      sum(std::integral_constant<int, 64>{}, segments[i]);
    else if (segments[i].nb == 32)
      sum(std::integral_constant<int, 32>{}, segments[i]);
    else
      sum(std::integral_constant<int, 16>{}, segments[i]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(r, v, c[r][v]);
}

template <int NV>
void grad_panel(const Segment* segments, size_t count, size_t m, size_t n, size_t first,
                const float* panel, float* g, bool add) {
  row_tiles<tile_rows<NV>()>(m, [&]<int R>(std::integral_constant<int, R>, size_t i) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < NV; ++v)
        _mm_prefetch(reinterpret_cast<const char*>(g + (i + r) * n + first + v * 16), _MM_HINT_T0);
    grad_tile<R, NV>(segments, count, i, panel, [&](int r, int v, Vec c) {
      float* to = g + (i + r) * n + first + v * 16;
      const __mmask16 on = lanes(n - first - v * 16);
      if (add) c = _mm512_add_ps(c, _mm512_maskz_loadu_ps(on, to));
      _mm512_mask_storeu_ps(to, on, c);
    });
  });
}

// g [m][n] = (or +=) the sum over rows of d [m] x y [n]. `segments` hold d by blocks, `panels` y by
// `transpose`, `padded` rows a panel.
inline void grad_weight(const Segment* segments, size_t count, size_t padded, size_t m, size_t n,
                        const float* panels, float* g, bool add) {
  for (size_t first = 0; first < n; first += 64) {
    const float* panel = panels + first * padded;
    switch ((std::min<size_t>(64, n - first) + 15) / 16) {
      case 4:
        grad_panel<4>(segments, count, m, n, first, panel, g, add);
        break;
      case 3:
        grad_panel<3>(segments, count, m, n, first, panel, g, add);
        break;
      case 2:
        grad_panel<2>(segments, count, m, n, first, panel, g, add);
        break;
      default:
        grad_panel<1>(segments, count, m, n, first, panel, g, add);
    }
  }
}

// 16 rows of up to 16 floats, `ld` apart, become columns. Rows from `rows` on and lanes off read 0.
inline void transpose16(const float* src, size_t lds, size_t rows, __mmask16 on, float* dst,
                        size_t ldd, size_t out_rows) {
  Vec r[16], t[16];
  for (size_t i = 0; i < 16; ++i)
    r[i] = i < rows ? _mm512_maskz_loadu_ps(on, src + i * lds) : _mm512_setzero_ps();
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  auto lo = [](Vec a, Vec b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  auto hi = [](Vec a, Vec b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = lo(t[4 * i], t[4 * i + 2]), r[4 * i + 1] = hi(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = lo(t[4 * i + 1], t[4 * i + 3]), r[4 * i + 3] = hi(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
  if (out_rows >= 16) {
    for (size_t i = 0; i < 16; ++i) _mm512_storeu_ps(dst + i * ldd, r[i]);
  } else {
    for (size_t i = 0; i < out_rows; ++i) _mm512_storeu_ps(dst + i * ldd, r[i]);
  }
}

// y [n][nb] becomes rows of the panels: [padded][64] each, the last one as wide as needed.
inline void transpose(const float* y, size_t n, size_t nb, size_t first_row, size_t padded,
                      float* panels) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t base = i / 64 * 64;
    const size_t width = std::min<size_t>(64, (n - base + 15) / 16 * 16);
    float* panel = panels + base * padded + first_row * width + (i - base);
    for (size_t b = 0; b < nb; b += 16)
      transpose16(y + i * nb + b, nb, n - i, 0xffff, panel + b * width, width, 16);
  }
}

// Row-major src [rows][n] becomes dst [n][nb]; the last row is repeated up to nb.
inline void load_rows(const float* src, size_t rows, size_t n, size_t nb, float* dst) {
  for (size_t b = 0; b < nb; b += 16) {
    const size_t real = b < rows ? rows - b : 0;
    for (size_t i = 0; i < n && real; i += 16)
      transpose16(src + b * n + i, n, real, lanes(n - i), dst + i * nb + b, nb, n - i);
  }
  for (size_t i = 0; i < n && rows < nb; ++i)
    for (size_t b = rows; b < nb; ++b) dst[i * nb + b] = dst[i * nb + rows - 1];
}

// sums[i] = sum over the real rows of d[i].
inline void sum_rows(const Segment* segments, size_t count, size_t m, float* sums, bool add) {
  for (size_t i = 0; i < m; ++i) {
    Vec c = _mm512_setzero_ps();
    for (size_t s = 0; s < count; ++s) {
      const float* d = segments[s].data + i * segments[s].nb;
      size_t k = 0;
      for (; k + 16 <= segments[s].rows; k += 16) c = _mm512_add_ps(c, _mm512_load_ps(d + k));
      c = _mm512_add_ps(c, _mm512_maskz_loadu_ps(lanes(segments[s].rows - k), d + k));
    }
    const float sum = _mm512_reduce_add_ps(c);
    sums[i] = add ? sums[i] + sum : sum;
  }
}

// The 16 partial sums of one row of W with x. The weights come from the L2 cache, which keeps up
// with the multiplier only if it is asked some lines ahead.
[[gnu::always_inline]] inline Vec dot(const float* w, const float* x, size_t n) {
  constexpr size_t kAhead = 512;  // floats
  Vec a = _mm512_setzero_ps(), b = a, c = a, d = a;
  size_t j = 0;
  for (; j + 64 <= n; j += 64) {
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line)
      _mm_prefetch(reinterpret_cast<const char*>(w + j + kAhead + line * 16), _MM_HINT_T0);
    a = _mm512_fmadd_ps(_mm512_loadu_ps(w + j), _mm512_loadu_ps(x + j), a);
    b = _mm512_fmadd_ps(_mm512_loadu_ps(w + j + 16), _mm512_loadu_ps(x + j + 16), b);
    c = _mm512_fmadd_ps(_mm512_loadu_ps(w + j + 32), _mm512_loadu_ps(x + j + 32), c);
    d = _mm512_fmadd_ps(_mm512_loadu_ps(w + j + 48), _mm512_loadu_ps(x + j + 48), d);
  }
  for (; j + 16 <= n; j += 16)
    a = _mm512_fmadd_ps(_mm512_loadu_ps(w + j), _mm512_loadu_ps(x + j), a);
  if (j < n) {
    const __mmask16 on = lanes(n - j);
    b = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(on, w + j), _mm512_maskz_loadu_ps(on, x + j), b);
  }
  return _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
}

// out [m] = W [m][n] x + bias for one row, clipped at 0 if `relu`.
inline void matvec(size_t m, size_t n, const float* w, const float* bias, bool relu, const float* x,
                   float* out) {
  const float low = relu ? 0.f : -__builtin_inff();
  auto half = [](Vec v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  };
  size_t i = 0;
  for (; i + 4 <= m; i += 4) {
    const float* row = w + i * n;
    const __m256 a = half(dot(row, x, n)), b = half(dot(row + n, x, n));
    const __m256 c = half(dot(row + 2 * n, x, n)), d = half(dot(row + 3 * n, x, n));
    const __m256 e = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    if (bias) s = _mm_add_ps(s, _mm_loadu_ps(bias + i));
    _mm_storeu_ps(out + i, _mm_max_ps(_mm_set1_ps(low), s));
  }
  for (; i < m; ++i) {
    const float s = _mm512_reduce_add_ps(dot(w + i * n, x, n)) + (bias ? bias[i] : 0.f);
    out[i] = s < low ? low : s;
  }
}

}  // namespace copal::avx512
#endif
