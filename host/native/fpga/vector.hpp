// SPDX-License-Identifier: MIT
// VECTOR and QUANT: the float32 lanes.
//
// Cost: O(words), vectorised over blocks of lanes but for exp, log and tanh. Limits: none beyond
// docs/hardware.md. Thread-safety: one model one thread.
//
//   column c: (nt + 1) * P lanes in a row:  V[x], V[y] or imm --abs, neg--> vop --pred--> V[d]
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "functions.hpp"
#include "numbers.hpp"

namespace copal::fpga {

enum Vop {
  kMov,
  kAdd,
  kMul,
  kDiv,
  kMin,
  kMax,
  kLt,
  kLe,
  kEq,
  kSignOf,
  kRelug,
  kSelz,
  kItof,
  kSqrt,
  kExp,
  kLog,
  kTanh,
};

constexpr int64_t kBlock = 256;

// An operand of `count` lanes after abs and neg.
inline void read_operand(float* out, const float* words, bool is_imm, float imm, bool absolute,
                         bool negative, int64_t count) {
  const uint32_t keep = absolute ? ~kSign : ~0u, flip = negative ? kSign : 0u;
  if (is_imm) {
    const float x = as_float((as_bits(imm) & keep) ^ flip);
    for (int64_t i = 0; i < count; ++i) out[i] = x;
  } else if (!absolute && !negative) {
    std::memcpy(out, words, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = as_float((as_bits(words[i]) & keep) ^ flip);
  }
}

inline void make_canonical(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = canonical(x[i]);
}

template <class F>
void each(float* r, const float* x, const float* y, int64_t count, F&& f) {
  for (int64_t i = 0; i < count; ++i) r[i] = f(x[i], y[i]);
}

// `r = x vop y` of canonical operands (MOV and ITOF: of bits).
inline void operate(const Functions& functions, int64_t vop, float* r, const float* x,
                    const float* y, float imm, double scale, int64_t count) {
  const auto ordered = [](float a, float b, float result) {
    return a == a && b == b ? result : as_float(kNan);
  };
  switch (vop) {
    case kMov:
      return each(r, x, y, count, [](float a, float) { return a; });
    case kAdd:
      return each(r, x, y, count, [](float a, float b) { return canonical(a + b); });
    case kMul:
      return each(r, x, y, count, [](float a, float b) { return canonical(a * b); });
    case kDiv:
      return each(r, x, y, count, [](float a, float b) { return canonical(a / b); });
    case kMin:
      return each(r, x, y, count, [&](float a, float b) { return ordered(a, b, b < a ? b : a); });
    case kMax:
      return each(r, x, y, count, [&](float a, float b) { return ordered(a, b, a < b ? b : a); });
    case kLt:
      return each(r, x, y, count, [](float a, float b) { return a < b ? 1.f : 0.f; });
    case kLe:
      return each(r, x, y, count, [](float a, float b) { return a <= b ? 1.f : 0.f; });
    case kEq:
      return each(r, x, y, count, [](float a, float b) { return a == b ? 1.f : 0.f; });
    case kSignOf:
      return each(r, x, y, count, [&](float a, float) {
        return ordered(a, a, a > 0 ? 1.f : a < 0 ? -1.f : 0.f);
      });
    case kRelug:
      return each(r, x, y, count, [](float a, float b) { return b > 0 ? a : 0.f; });
    case kSelz:
      return each(r, x, y, count, [=](float a, float b) { return b == imm ? a : 0.f; });
    case kItof:
      return each(r, x, y, count, [=](float a, float) {
        return from_integer(static_cast<int32_t>(as_bits(a)), scale);
      });
    case kSqrt:
      return each(r, x, y, count, [](float a, float) { return canonical(std::sqrt(a)); });
    case kExp:
      return each(r, x, y, count, [&](float a, float) { return canonical(functions.exp(a)); });
    case kLog:
      return each(r, x, y, count, [&](float a, float) { return canonical(functions.log(a)); });
    case kTanh:
      return each(r, x, y, count, [&](float a, float) { return canonical(functions.tanh(a)); });
    default:
      throw Error("ProgramError", "vop", "0 to 16", std::to_string(vop));
  }
}

inline void vector(const Memories& mem, const Fields& f, const Functions& functions) {
  const int64_t run = (f.nt + 1) * mem.p;
  const float imm = as_float(static_cast<uint32_t>(f.imm)), level = canonical(imm);
  const bool bits = f.vop == kMov || f.vop == kItof;
  const bool y_imm = f.y_imm && f.pred != 2;
  const double scale = std::ldexp(1.0, static_cast<int>(-f.exponent));
  alignas(64) float x[kBlock], y[kBlock], r[kBlock];
  for (int64_t c = 0; c <= f.cols; ++c)
    for (int64_t at = 0; at < run; at += kBlock) {
      const int64_t count = std::min(kBlock, run - at);
      // Addresses of operands that are not read may lie anywhere.
      const bool reads_y =
          f.pred || (f.vop >= kAdd && f.vop <= kEq) || f.vop == kRelug || f.vop == kSelz;
      const float* xs = f.x_imm ? x : mem.v + (f.x_base + c * f.x_c) * mem.p + at;
      const float* ys = y_imm || !reads_y ? y : mem.v + (f.y_base + c * f.y_c) * mem.p + at;
      read_operand(x, xs, f.x_imm, imm, f.x_abs, f.x_neg, count);
      read_operand(y, ys, y_imm || !reads_y, imm, f.y_abs, f.y_neg, count);
      if (!bits) make_canonical(x, count);
      make_canonical(y, count);
      float* d = mem.v + (f.d_base + c * f.d_c) * mem.p + at;
      if (!f.pred) {
        operate(functions, f.vop, r, x, y, level, scale, count);
        std::memcpy(d, r, static_cast<size_t>(count) * sizeof(float));
        continue;
      }
      operate(functions, f.vop, r, x, y, level, scale, count);
      const bool equals = f.pred == 2;
      const float to = equals ? level : 0.f;
      for (int64_t i = 0; i < count; ++i)
        d[i] = as_float((y[i] == to) == equals ? as_bits(r[i]) : as_bits(d[i]));
    }
}

// Returns the error.
inline ErrorCode quant(const Memories& mem, const Fields& f, std::vector<int64_t>& values) {
  const int64_t p = mem.p, width = (f.nt + 1) * p;
  const int64_t counted = f.n_tail ? f.nt * p + f.n_tail : width;
  const int64_t features = std::min(f.cols, (f.mt + 1) * p);
  uint32_t worst = 0;
  for (int64_t feature = 0; feature < features; ++feature) {
    const float* x = mem.v + (f.x_base + feature * f.x_c) * p;
    for (int64_t j = 0; j < counted; ++j) worst = std::max(worst, as_bits(x[j]) & ~kSign);
  }
  if (worst >= 0x7f800000u) return kNotFinite;
  const double scale = std::ldexp(1.0, static_cast<int>(f.exponent));
  const int operand = mem.operand_bits(f.to_a, f.to_b), bits = operand ? operand : 32;
  values.resize(static_cast<size_t>(width));
  for (int64_t feature = 0; feature < (f.mt + 1) * p; ++feature) {
    if (feature < features) {
      const float* x = mem.v + (f.x_base + feature * f.x_c) * p;
      for (int64_t j = 0; j < width; ++j) values[j] = to_integer(x[j], scale, 32);
    } else {
      std::fill(values.begin(), values.end(), 0);
    }
    note_range(mem.range, f.range, values.data(), counted, bits);
    for (int64_t n = 0; n <= f.nt; ++n) {
      const int64_t at = (f.c_base + feature / p * f.c_m + n * f.c_n + feature % p) * p;
      for (int64_t j = 0; j < p; ++j) {
        const auto x = static_cast<int32_t>(saturate(values[n * p + j], bits));
        if (f.to_a) mem.a[at + j] = x;
        if (f.to_b) mem.b[at + j] = x;
      }
    }
  }
  return kNone;
}

}  // namespace copal::fpga
