// SPDX-License-Identifier: MIT
// Runs a Program without a gradient, on any number of rows: what an actor does at every step.
//
// Cost: the products of n rows; up to 4 rows go one by one as dot products, more in blocks of 16,
// 32 and 64. Limits: one network. Thread-safety: any number of threads at once, scratch memory
// belongs to the thread and grows once.
//
//   rows [n][width] -> blocks [width][nb] -> steps -> outputs [n][width]
#pragma once
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "block_runner.hpp"
#include "load.hpp"

namespace copal {

class Policy {
 public:
  // Throws ProgramError or ConfigError.
  Policy(const Program& program, const std::string& gemm)
      : gemm_(gemm_kind(gemm)), plan_(lower(program, gemm_ == GemmKind::kOwn)) {
    if (program.networks.size() != 1)
      throw Error("ProgramError", "networks", "one network that acts",
                  std::to_string(program.networks.size()));
    if (!plan_.sums.empty()) throw Error("ProgramError", "ops", "no gradient in a policy", "one");
  }

  const std::vector<Buffer>& inputs() const { return plan_.inputs; }
  const std::vector<Output>& outputs() const { return plan_.outputs; }
  const Value& output(size_t i) const { return plan_.values[plan_.outputs[i].value]; }
  size_t size() const { return plan_.networks[0].size; }
  const std::string& network() const { return plan_.networks[0].name; }

  // Runs n >= 1 rows. out[i] takes output i as [n][width], float or, for int32, int64; nullptr
  // skips.
  void act(const float* weights, const ColumnView* columns, size_t n, void* const* out) const {
    thread_local Aligned<float> scratch;
    if (scratch.size() < plan_.temporary) scratch = Aligned<float>(plan_.temporary);
    Frame f{plan_, gemm_, &weights, scratch.data(), nullptr, nullptr, 0, {}};
    for (size_t row = 0; row < n;) {
      const size_t left = n - row;
      const size_t nb = n <= kSingles ? 1 : left > 48 ? 64 : left > 16 ? 32 : 16;
      const size_t rows = left < nb ? left : nb;
      f.block = {0, nb, rows};
      for (size_t i = 0; i < plan_.inputs.size(); ++i)
        if (plan_.input_values[i] >= 0)
          load_block(plan_.inputs[i], columns[i], row, rows, nb, f.to(plan_.input_values[i]));
      run_block(f);
      for (size_t i = 0; i < plan_.outputs.size(); ++i)
        if (out[i]) store(f, i, row, rows, out[i]);
      row += rows;
    }
  }

 private:
  void store(const Frame& f, size_t i, size_t row, size_t rows, void* to) const {
    const Value& v = output(i);
    const float* x = f.at(plan_.outputs[i].value);
    for (size_t r = 0; r < rows; ++r)
      for (size_t j = 0; j < v.width; ++j) {
        const size_t from = j * f.block.nb + r, at = (row + r) * v.width + j;
        if (v.is_int)
          static_cast<int64_t*>(to)[at] = elementwise::index_at({x, 1}, from);
        else
          static_cast<float*>(to)[at] = x[from];
      }
  }

  static constexpr size_t kSingles = 4;

  const GemmKind gemm_;
  const Plan plan_;
};

}  // namespace copal
