// SPDX-License-Identifier: MIT
// Time of one bare dense product, as an update runs it: the bound that benchmarks compare with.
//
// Cost: `repeats` products. Limits: rows, fan_in and fan_out of at least 1. Thread-safety: pure.
//
//   rows in blocks -> the product alone, again and again, on the same buffers
#pragma once
#include <chrono>
#include <vector>

#include "aligned.hpp"
#include "gemm.hpp"
#include "program.hpp"
#include "segment.hpp"

namespace copal {

namespace gemm_bench {

struct Buffers {
  Buffers(size_t rows, size_t fan_in, size_t fan_out)
      : blocks(cut_rows(rows)),
        padded(padded_rows(blocks)),
        w(fan_in * fan_out),
        x((fan_in + 64) * padded),
        d((fan_out + 64) * padded) {
    for (float& v : w) v = 0.5f;
    for (float& v : x) v = 0.25f;
    for (float& v : d) v = 0.125f;
    for (const Block& b : blocks) {
      xs.push_back({x.data() + fan_in * b.first, b.nb, b.rows});
      ds.push_back({d.data() + fan_out * b.first, b.nb, b.rows});
    }
  }
  std::vector<Block> blocks;
  size_t padded;
  Aligned<float> w, x, d;
  std::vector<Segment> xs, ds;
};

inline void product(Buffers& b, GemmKind gemm, OpKind kind, size_t fan_in, size_t fan_out) {
  if (kind == OpKind::kDenseGradWeight) {
#ifdef COPAL_OWN_GEMM
    if (gemm == GemmKind::kOwn)
      return avx512::grad_weight(b.ds.data(), b.ds.size(), b.padded, fan_out, fan_in, b.x.data(),
                                 b.w.data(), false);
#endif
    return eigen::grad_weight(b.ds.data(), b.xs.data(), b.ds.size(), fan_out, fan_in, b.w.data(),
                              false);
  }
  for (size_t i = 0; i < b.blocks.size(); ++i) {
    float* x = b.x.data() + fan_in * b.blocks[i].first;
    float* d = b.d.data() + fan_out * b.blocks[i].first;
    if (kind == OpKind::kDense)
      gemm::forward(gemm, fan_out, fan_in, b.blocks[i].nb, b.w.data(), nullptr, false, x, d);
    else
      gemm::grad_input(gemm, fan_in, fan_out, b.blocks[i].nb, b.w.data(), d, nullptr, x);
  }
}

}  // namespace gemm_bench

// Seconds of one product of `kind` (a dense one), the mean over `repeats`.
inline double product_seconds(OpKind kind, GemmKind gemm, size_t rows, size_t fan_in,
                              size_t fan_out, size_t repeats) {
  gemm_bench::Buffers buffers(rows, fan_in, fan_out);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (size_t i = 0; i < repeats; ++i) gemm_bench::product(buffers, gemm, kind, fan_in, fan_out);
  return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(repeats);
}

}  // namespace copal
