// SPDX-License-Identifier: MIT
// x^y for arrays of float32, without branches so that compilers vectorise it.
//
// Cost: O(1) a value. Limits: x >= 0; relative error below 2e-6 while |y log2 x| <= 20 and growing
// with it beyond; results are kept in [2^-126, 2^126]. Stateless.
//
//   log2: x = 2^e m, m in [sqrt 1/2, sqrt 2), odd series in (m - 1) / (m + 1)
//   exp2: y = n + r, r in [-1/2, 1/2), Taylor polynomial of degree 7, n added to the exponent bits
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace copal {

inline float fast_log2(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t e = (bits - 0x3f3504f3) >> 23;
  const float m = std::bit_cast<float>(bits - (e << 23));
  const float s = (m - 1.f) / (m + 1.f), q = s * s;
  const float series =
      2.885390082f +
      q * (0.961796694f + q * (0.577078016f + q * (0.412198583f + q * 0.320598898f)));
  return static_cast<float>(e) + s * series;
}

inline float fast_exp2(float y) {
  y = std::min(std::max(y, -126.f), 126.f);
  const float n = std::floor(y + 0.5f), r = y - n;
  float p = 1.52527338e-5f;
  p = 0.000154035304f + r * p;
  p = 0.00133335581f + r * p;
  p = 0.00961812911f + r * p;
  p = 0.0555041087f + r * p;
  p = 0.240226507f + r * p;
  p = 0.693147182f + r * p;
  p = 1.f + r * p;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// x^y for x >= 0; 0^y is `at_zero`.
inline float fast_pow(float x, float y, float at_zero) {
  const float positive = std::max(x, std::numeric_limits<float>::min());
  const float p = fast_exp2(y * fast_log2(positive));
  return x > 0.f ? p : at_zero;
}

}  // namespace copal
