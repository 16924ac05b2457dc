// SPDX-License-Identifier: MIT
// Products of small integers in float64: exact in any order while a sum stays below 2^53.
//
// Cost: m n k multiplications, 8 at a time with AVX-512, and packing. Limits: exactness as above;
// sizes padded to whole panels. Thread-safety: one Gemm one thread.
//
//   A: panels of kRows rows, [panel][k][row]     B: panels of kCols columns, [panel][k][column]
//   C: row-major, as wide as the panels of B together
#pragma once
#include <cstddef>
#include <cstdint>

#include "../aligned.hpp"

namespace copal::fpga {

#if defined(__AVX512F__)
constexpr int64_t kWidth = 8;
#elif defined(__AVX__)
constexpr int64_t kWidth = 4;
#else
constexpr int64_t kWidth = 2;
#endif
constexpr int64_t kRows = kWidth == 8 ? 8 : 4;
constexpr int64_t kCols = 2 * kWidth;

typedef double DoubleVector __attribute__((vector_size(kWidth * 8), may_alias));

inline int64_t panels(int64_t n, int64_t size) { return (n + size - 1) / size; }

// An operand in panels of `Size` lanes.
template <int64_t Size>
class Panels {
 public:
  // Makes room for `lanes` lanes of `k` steps. Lanes behind the last are arbitrary numbers.
  void resize(int64_t lanes, int64_t k) {
    k_ = k;
    const size_t needed = static_cast<size_t>(panels(lanes, Size) * Size * k);
    if (data_.size() < needed) data_ = Aligned<double>(needed);
  }

  // Element of `lane` in step `k`; the lanes up to the next multiple of Size follow.
  double* at(int64_t lane, int64_t k) {
    return data_.data() + (lane / Size * k_ + k) * Size + lane % Size;
  }
  const double* panel(int64_t number) const { return data_.data() + number * k_ * Size; }

 private:
  Aligned<double> data_;
  int64_t k_ = 0;
};

class Gemm {
 public:
  Panels<kRows> a;
  Panels<kCols> b;

  // C = A * B^T for `m` lanes of A, `n` of B and `k` steps.
  void multiply(int64_t m, int64_t n, int64_t k) {
    stride_ = panels(n, kCols) * kCols;
    const size_t needed = static_cast<size_t>(panels(m, kRows) * kRows * stride_);
    if (c_.size() < needed) c_ = Aligned<double>(needed);
    for (int64_t j = 0; j < panels(n, kCols); ++j)
      for (int64_t i = 0; i < panels(m, kRows); ++i)
        tile(k, a.panel(i), b.panel(j), c_.data() + i * kRows * stride_ + j * kCols, stride_);
  }

  const double* row(int64_t i) const { return c_.data() + i * stride_; }

 private:
  static void tile(int64_t k, const double* a, const double* b, double* c, int64_t stride) {
    DoubleVector sum[kRows][2] = {};
    for (; k > 0; --k, a += kRows, b += kCols) {
      const auto* x = reinterpret_cast<const DoubleVector*>(b);
      const DoubleVector x0 = x[0], x1 = x[1];
      for (int64_t i = 0; i < kRows; ++i) {
        sum[i][0] += a[i] * x0;
        sum[i][1] += a[i] * x1;
      }
    }
    for (int64_t i = 0; i < kRows; ++i) {
      auto* out = reinterpret_cast<DoubleVector*>(c + i * stride);
      out[0] = sum[i][0];
      out[1] = sum[i][1];
    }
  }

  Aligned<double> c_;
  int64_t stride_ = 0;
};

}  // namespace copal::fpga
