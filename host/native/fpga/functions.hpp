// SPDX-License-Identifier: MIT
// exp, log and tanh of the vector lanes: the integer arithmetic of copal.fpga.functions.
//
// Cost: one table entry of three numbers and three multiplications a value. Limits: operands are
// canonical. Thread-safety: pure.
//
//   float32 -> mantissa, exponent -> segment of 256, offset -> c0 + (c1 + c2 r) r -> float32
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "numbers.hpp"

namespace copal::fpga {

class Functions {
 public:
  static constexpr int64_t kSegments = 256;

  // `parabolas`: c0 of all segments, then c1, then c2; they have to outlive this.
  explicit Functions(const int64_t* parabolas) : table_(parabolas) {}

  float exp(float x) const {
    const Parts a(x);
    if (x != x) return x;
    if (a.exponent > 133) return a.negative ? 0.f : kInfinity;
    const int64_t t = a.negative ? -a.times_log2_e() : a.times_log2_e();
    const int64_t fraction = t & 0xffffff;
    const int64_t p = evaluate(fraction >> 18, fraction);
    return static_cast<float>(std::ldexp(static_cast<double>(p), power_of(t) - kFraction));
  }

  float log(float x) const {
    const Parts a(x);
    if (x == 0) return -kInfinity;
    if (!(x > 0)) return as_float(kNan);
    if (x == kInfinity) return x;
    const int64_t fraction = a.mantissa & 0x7fffff;
    const bool low = fraction >> 22;
    const int64_t power = a.exponent - 127 + low;
    const int64_t p = low ? evaluate(kLogLow - 16 + (fraction >> 18), fraction)
                          : evaluate(kLog + (fraction >> 17), fraction << 1);
    const int64_t d = low ? (1 << 24) - a.mantissa : fraction << 1;
    if (power == 0) {
      const double near = std::ldexp(static_cast<double>(d * p), -24 - kFraction);
      return static_cast<float>(low ? -near : near);
    }
    const int64_t whole = std::abs(power) * kLn2 >> 6, part = d * p >> 22;
    const int64_t sum = (power < 0) == low ? whole + part : whole - part;
    const double far = std::ldexp(static_cast<double>(sum), -28);
    return static_cast<float>(power < 0 ? -far : far);
  }

  float tanh(float x) const {
    if (x != x) return x;
    const Parts a(x);
    const int64_t one = 1 << 24;
    const int64_t t = a.exponent > 133 ? 16 * one : a.times_log2_e();
    if (t >= 16 * one) return std::copysign(1.f, x);
    int64_t p = 0;
    if (t < 2 * one) {
      p = evaluate(kTanh + (t >> 19), t >> 1);
    } else if (t < 4 * one) {
      p = evaluate(kTanh2 - 32 + (t >> 20), t >> 2);
    } else if (t < 8 * one) {
      p = evaluate(kTanh4 - 32 + (t >> 21), t >> 3);
    } else {
      p = evaluate(224 + (t >> 23), t >> 5);
    }
    const double value = std::ldexp(static_cast<double>(p), -kFraction);
    return static_cast<float>((t < 4 * one ? x : std::copysign(1.f, x)) * value);
  }

 private:
  static constexpr int kFraction = 26;
  static constexpr int64_t kLog2E = 12392656037, kLn2 = 11908177887;
  static constexpr int64_t kTanh = 64, kTanh2 = 128, kTanh4 = 160, kLog = 192, kLogLow = 224;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  struct Parts {
    explicit Parts(float x) {
      const uint32_t bits = as_bits(x);
      exponent = bits >> 23 & 0xff;
      mantissa = exponent ? (bits & 0x7fffff) | 0x800000 : 0;
      negative = bits >> 31;
    }
    int64_t times_log2_e() const {
      return mantissa * kLog2E >> std::clamp<int64_t>(159 - exponent, 26, 63);
    }
    int64_t mantissa, exponent;
    bool negative;
  };

  static int power_of(int64_t t) { return static_cast<int>(t >> 24); }

  // The low 18 bits of `offset` say where in the segment.
  int64_t evaluate(int64_t index, int64_t offset) const {
    const int64_t r = (offset & 0x3ffff) - (1 << 17);
    const int64_t slope = table_[kSegments + index] + (table_[2 * kSegments + index] * r >> 17);
    return table_[index] + (slope * r >> 17);
  }

  const int64_t* table_;
};

}  // namespace copal::fpga
