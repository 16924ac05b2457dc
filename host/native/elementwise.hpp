// SPDX-License-Identifier: MIT
// Operations on [width][nb] blocks other than the dense products. NaN always goes through.
//
// Cost: O(width * nb), vectorised by the compiler. Limits: nb is 1, 16, 32 or 64; an operand of
// width 1 is used for every column; outputs never overlap inputs. Thread-safety: pure.
//
//   column j of a block:  | row 0 | row 1 | ... | row nb-1 |       columns behind one another
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "program.hpp"
#include "vector_math.hpp"

namespace copal {

struct Operand {
  const float* data;
  size_t width;
};

namespace elementwise {

template <class F>
inline void map1(F f, const Operand& x, size_t nb, float* __restrict out) {
  const float* __restrict a = x.data;
  for (size_t i = 0; i < x.width * nb; ++i) out[i] = f(a[i]);
}

template <class F>
inline void map2(F f, const Operand& x, const Operand& y, size_t nb, float* out) {
  auto column = [&](const float* __restrict a, const float* __restrict b, float* __restrict o,
                    size_t n) {
    for (size_t i = 0; i < n; ++i) o[i] = f(a[i], b[i]);
  };
  if (x.width == y.width) return column(x.data, y.data, out, x.width * nb);
  const size_t width = x.width > y.width ? x.width : y.width;
  for (size_t j = 0; j < width; ++j)
    column(x.data + (x.width > 1 ? j * nb : 0), y.data + (y.width > 1 ? j * nb : 0), out + j * nb,
           nb);
}

inline void where(const Operand& c, const Operand& x, const Operand& y, size_t width, size_t nb,
                  float* __restrict out) {
  for (size_t j = 0; j < width; ++j) {
    const float* on = c.data + (c.width > 1 ? j * nb : 0);
    const float* a = x.data + (x.width > 1 ? j * nb : 0);
    const float* b = y.data + (y.width > 1 ? j * nb : 0);
    for (size_t i = 0; i < nb; ++i) out[j * nb + i] = on[i] != 0 ? a[i] : b[i];
  }
}

inline int32_t index_at(const Operand& y, size_t i) {
  int32_t k;
  std::memcpy(&k, y.data + i, sizeof k);
  return k;
}

// An index outside the row gives NaN, which the learner reports, and reads nothing.
inline void gather(const Operand& x, const Operand& y, size_t nb, float* out) {
  for (size_t i = 0; i < nb; ++i) {
    const auto k = static_cast<uint32_t>(index_at(y, i));
    out[i] = k < x.width ? x.data[k * nb + i] : std::numeric_limits<float>::quiet_NaN();
  }
}

inline void scatter(const Operand& x, const Operand& y, size_t width, size_t nb, float* out) {
  std::memset(out, 0, width * nb * sizeof(float));
  for (size_t i = 0; i < nb; ++i) {
    const auto k = static_cast<uint32_t>(index_at(y, i));
    if (k < width) out[k * nb + i] = x.data[i];
  }
}

inline float max_of(float a, float b) { return a > b || a != a ? a : b; }
inline float min_of(float a, float b) { return a < b || a != a ? a : b; }

inline void row_max(const Operand& x, size_t nb, float* __restrict out) {
  const float* __restrict a = x.data;
  for (size_t i = 0; i < nb; ++i) out[i] = a[i];
  for (size_t j = 1; j < x.width; ++j)
    for (size_t i = 0; i < nb; ++i) out[i] = max_of(a[j * nb + i], out[i]);
}

inline void row_argmax(const Operand& x, size_t nb, float* out) {
  for (size_t i = 0; i < nb; ++i) {
    int32_t best = 0;
    for (size_t j = 1; j < x.width; ++j)
      if (x.data[j * nb + i] > x.data[static_cast<size_t>(best) * nb + i])
        best = static_cast<int32_t>(j);
    std::memcpy(out + i, &best, sizeof best);
  }
}

inline void row_sum(const Operand& x, size_t nb, float* __restrict out) {
  const float* __restrict a = x.data;
  for (size_t i = 0; i < nb; ++i) out[i] = a[i];
  for (size_t j = 1; j < x.width; ++j)
    for (size_t i = 0; i < nb; ++i) out[i] += a[j * nb + i];
}

inline void to_float(const Operand& x, size_t nb, float* out) {
  for (size_t i = 0; i < x.width * nb; ++i) out[i] = static_cast<float>(index_at(x, i));
}

// Runs one of the kinds that take one or two float operands of like shape.
inline void run(OpKind kind, const Operand& x, const Operand& y, size_t nb, float* out) {
  switch (kind) {
    case OpKind::kAdd:
      return map2([](float a, float b) { return a + b; }, x, y, nb, out);
    case OpKind::kSub:
      return map2([](float a, float b) { return a - b; }, x, y, nb, out);
    case OpKind::kMul:
      return map2([](float a, float b) { return a * b; }, x, y, nb, out);
    case OpKind::kDiv:
      return map2([](float a, float b) { return a / b; }, x, y, nb, out);
    case OpKind::kMinimum:
      return map2([](float a, float b) { return min_of(a, b); }, x, y, nb, out);
    case OpKind::kMaximum:
      return map2([](float a, float b) { return max_of(a, b); }, x, y, nb, out);
    case OpKind::kLess:
      return map2([](float a, float b) { return a < b ? 1.f : 0.f; }, x, y, nb, out);
    case OpKind::kLessEqual:
      return map2([](float a, float b) { return a <= b ? 1.f : 0.f; }, x, y, nb, out);
    case OpKind::kEqual:
      return map2([](float a, float b) { return a == b ? 1.f : 0.f; }, x, y, nb, out);
    case OpKind::kReluGrad:
      return map2([](float a, float b) { return b > 0 ? a : 0.f; }, x, y, nb, out);
    case OpKind::kNeg:
      return map1([](float a) { return -a; }, x, nb, out);
    case OpKind::kAbs:
      return map1([](float a) { return std::fabs(a); }, x, nb, out);
    case OpKind::kSign:
      return map1([](float a) { return a > 0 ? 1.f : a < 0 ? -1.f : a; }, x, nb, out);
    case OpKind::kExp:
      return map1([](float a) { return vector_math::exp(a); }, x, nb, out);
    case OpKind::kLog:
      return map1([](float a) { return vector_math::log(a); }, x, nb, out);
    case OpKind::kTanh:
      return map1([](float a) { return vector_math::tanh(a); }, x, nb, out);
    case OpKind::kSqrt:
      return map1([](float a) { return std::sqrt(a); }, x, nb, out);
    case OpKind::kRelu:
      return map1([](float a) { return a < 0 ? 0.f : a; }, x, nb, out);
    default:
      return;
  }
}

}  // namespace elementwise
}  // namespace copal
