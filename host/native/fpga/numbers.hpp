// SPDX-License-Identifier: MIT
// The engine's numbers: canonical float32, saturated integers, ranges.
//
// Cost: O(1) a value, loops over it vectorise. Limits: `whole` below 2^51. Thread-safety: pure.
//
//   float32 --canonical--> no subnormals, one NaN --+ - * / sqrt--> canonical ...
//   float32 --to_integer(e, bits)--> rint(x * 2^e), saturated; 0 of NaN
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "state.hpp"

namespace copal::fpga {

inline float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t as_bits(float x) { return std::bit_cast<uint32_t>(x); }

constexpr uint32_t kSign = 0x80000000u, kNan = 0x7fc00000u;

// Subnormals become zeros of their sign, every NaN the quiet one.
inline float canonical(float x) {
  uint32_t bits = as_bits(x);
  const uint32_t magnitude = bits & ~kSign;
  bits = magnitude < 0x00800000u ? bits & kSign : bits;
  bits = magnitude > 0x7f800000u ? kNan : bits;
  return as_float(bits);
}

// The integer in `x`, which is whole and below 2^51: an addition leaves it in the low bits.
inline int64_t whole(double x) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  return std::bit_cast<int64_t>(x + kShift) - std::bit_cast<int64_t>(kShift);
}

inline int64_t saturate(int64_t x, int bits) {
  const int64_t top = int64_t{1} << (bits - 1);
  return std::min(std::max(x, -top), top - 1);
}

// Float to integer of at most 48 bits; `scale` is 2^exponent.
inline int64_t to_integer(float x, double scale, int bits) {
  const double top = static_cast<double>(int64_t{1} << (bits - 1));
  double y = std::nearbyint(static_cast<double>(canonical(x)) * scale);
  y = y == y ? y : 0.0;
  return whole(std::min(std::max(y, -top), top - 1));
}

inline float from_integer(int32_t x, double scale) {
  return canonical(static_cast<float>(x * scale));
}

// Entry of RANGE that stands for none.
inline constexpr int64_t kNoRange = 255;

// Adds `count` values before their saturation to `bits` bits to an entry of RANGE (255: none).
inline void note_range(uint64_t* range, int64_t entry, const int64_t* values, int64_t count,
                       int bits) {
  if (entry == kNoRange) return;
  uint64_t saturated = 0, magnitudes = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t x = values[i];
    saturated += saturate(x, bits) != x;
    const uint64_t magnitude = static_cast<uint64_t>(x < 0 ? -x : x);
    magnitudes |= magnitude > 0xffffffffu ? 0xffffffffu : magnitude;
  }
  const uint64_t old = range[entry];
  saturated = std::min<uint64_t>((old & 0xffffffffu) + saturated, 0xffffffffu);
  range[entry] = saturated | (old >> 32 | magnitudes) << 32;
}

}  // namespace copal::fpga
