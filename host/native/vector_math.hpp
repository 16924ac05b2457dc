// SPDX-License-Identifier: MIT
// exp, log, tanh and sine in float32 without branches, so that loops over them become vectors.
//
// Cost: 10 to 20 operations. Limits: relative error below 3e-7 at every finite argument, subnormal
// results included; infinities and NaN as in <cmath>. Where subnormal numbers are switched off they
// count as 0. Thread-safety: pure.
//
//   exp    x = n ln 2 + r, |r| <= ln 2 / 2             e^r = 1 + r + r^2 Q(r), times 2^n
//   log    x = 2^e m, m in [sqrt 1/2, sqrt 2), f = m - 1     ln m = f - f^2 / 2 + f^3 P(f)
//   tanh   E / (E + 2) for E = e^2|x| - 1, which keeps every digit of a small x
//
// The polynomials are minimax fits of the functions named, in the relative error of the result.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace copal::vector_math {

inline constexpr float kLn2High = 0x1.63p-1f;  // few bits, so that small multiples are exact
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kRounder = 0x1.8p23f;  // added to and taken from x it rounds x

// The power 2^n for n from -126 to 127.
inline float power_of_two(uint32_t n) { return std::bit_cast<float>((n + 127) << 23); }

// x as n ln 2 + r, for |x| below 2^15; n wraps below 0.
struct Reduced {
  uint32_t n;
  float r;
};
inline Reduced reduced(float x) {
  const float t = x * kLog2e + kRounder;
  const float n = t - kRounder;
  return {std::bit_cast<uint32_t>(t) - std::bit_cast<uint32_t>(kRounder),
          x - n * kLn2High - n * kLn2Low};
}

// e^r - 1 for |r| <= ln 2 / 2.
inline float expm1_near_0(float r) {
  float q = 0x1.6d990cp-10f;
  q = q * r + 0x1.1227fep-7f;
  q = q * r + 0x1.555486p-5f;
  q = q * r + 0x1.5554b0p-3f;
  q = q * r + 0.5f;
  return r + r * r * q;
}

inline float exp(float x) {
  const float above = x < -104.f ? -104.f : x;  // NaN passes both comparisons
  const Reduced a = reduced(above > 89.f ? 89.f : above);
  const float p = 1.f + expm1_near_0(a.r);
  const auto half = static_cast<uint32_t>(static_cast<int32_t>(a.n) >> 1);
  return p * power_of_two(half) * power_of_two(a.n - half);
}

inline float log(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3;
  const bool subnormal = x < std::numeric_limits<float>::min();
  const float scaled = subnormal ? x * 0x1p23f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) - kSqrtHalf;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (subnormal ? 23.f : 0.f);
  const float f = std::bit_cast<float>((bits & 0x7fffff) + kSqrtHalf) - 1.f;
  float p = -0x1.41ee0ap-4f;
  p = p * f + 0x1.07d0f0p-3f;
  p = p * f - 0x1.0ce07cp-3f;
  p = p * f + 0x1.226e4ap-3f;
  p = p * f - 0x1.54788ap-3f;
  p = p * f + 0x1.99a596p-3f;
  p = p * f - 0x1.000220p-2f;
  p = p * f + 0x1.55554ap-2f;
  const float z = f * f;
  const float positive = ((f * z * p + e * kLn2Low) - 0.5f * z + f) + e * kLn2High;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float other = x == 0 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  return x > 0 ? (x < kInfinity ? positive : x) : other;
}

inline float tanh(float x) {
  const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000u;
  const float twice = 2.f * std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  const Reduced a = reduced(twice > 20.f ? 20.f : twice);
  const float scale = power_of_two(a.n);
  const float e = scale * expm1_near_0(a.r) + (scale - 1.f);
  const float result = e / (e + 2.f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | sign);
}

// Sine and cosine of 2 pi v for 0 <= v < 1.
struct SineCosine {
  float sine, cosine;
};
inline SineCosine sine_cosine_of_turn(float v) {
  const float quarters = v * 4.f + kRounder;
  const float f = v * 4.f - (quarters - kRounder);  // exact, -1/2 to 1/2 of a quarter turn
  const uint32_t q = std::bit_cast<uint32_t>(quarters);
  const float z = f * f;
  float s = -0x1.2d9bb8p-8f;
  s = s * z + 0x1.465ec6p-4f;
  s = s * z - 0x1.4abbbap-1f;
  s = (s * z + 0x1.921fb6p+0f) * f;
  float c = 0x1.d9f7bcp-11f;
  c = c * z - 0x1.55c664p-6f;
  c = c * z + 0x1.03c1dep-2f;
  c = c * z - 0x1.3bd3ccp+0f;
  c = c * z + 1.f;
  const float sine = q & 1 ? c : s, cosine = q & 1 ? s : c;
  const uint32_t sine_sign = (q & 2) << 30, cosine_sign = ((q + 1) & 2) << 30;
  return {std::bit_cast<float>(std::bit_cast<uint32_t>(sine) ^ sine_sign),
          std::bit_cast<float>(std::bit_cast<uint32_t>(cosine) ^ cosine_sign)};
}

}  // namespace copal::vector_math
