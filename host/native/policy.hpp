// SPDX-License-Identifier: MIT
// Runs a Program without a gradient, on any number of rows: what an actor does at every step.
//
// Cost: the products of n rows that the outputs asked for need; up to 4 rows go one by one as dot
// products, more in blocks of 16, 32 and 64. Limits: at most 8 networks and 8 outputs.
// Thread-safety: any number of threads at once, scratch memory belongs to the thread and grows
// once.
//
//   rows [n][width] -> blocks [width][nb] -> steps -> outputs [n][width]
//   plans: each output alone | all that need no noise | all       weights: network 0 | network 1
//   ...
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
  static constexpr size_t kMaxOutputs = 8, kMaxNetworks = 8;

  // A bit an output, in the Program's order.
  using Outputs = uint32_t;

  // Throws ProgramError or ConfigError.
  Policy(const Program& program, const std::string& gemm) : gemm_(gemm_kind(gemm)) {
    check(program);
    for (const Network& n : program.networks) {
      offsets_.push_back(size_);
      size_ += n.size;
      names_.push_back(n.name);
    }
    const size_t count = program.outputs.size();
    Outputs quiet = 0;
    for (size_t i = 0; i < count; ++i) {
      add_plan(program, 1u << i);
      if (!reads_noise(plans_.back().plan)) quiet |= 1u << i;
    }
    add_plan(program, quiet);
    add_plan(program, all_ = (1u << count) - 1);
  }

  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  const std::vector<Buffer>& inputs() const { return whole().inputs; }
  const std::vector<Output>& outputs() const { return whole().outputs; }
  const Value& output(size_t i) const { return whole().values[whole().outputs[i].value]; }
  // Floats of all networks, which lie one behind another in the order of `networks()`.
  size_t size() const { return size_; }
  const std::vector<std::string>& networks() const { return names_; }
  Outputs all() const { return all_; }

  // Whether the outputs `asked` depend on input `i`.
  bool needs(Outputs asked, size_t i) const { return chosen(asked).plan.input_values[i] >= 0; }

  // Those of the outputs that depend on no noise.
  Outputs without_noise() const { return plans_[plans_.size() - 2].outputs; }

  // Runs n >= 1 rows on `columns`, in the order of `inputs()`. out[i] takes output i, for those
  // asked for, as [n][width], float or, for int32, int64.
  void act(Outputs asked, const float* weights, const ColumnView* columns, size_t n,
           void* const* out) const {
    const Plan& plan = chosen(asked).plan;
    thread_local Aligned<float> scratch;
    if (scratch.size() < plan.temporary) scratch = Aligned<float>(plan.temporary);
    const float* networks[kMaxNetworks];
    for (size_t i = 0; i < offsets_.size(); ++i) networks[i] = weights + offsets_[i];
    Frame f{plan, gemm_, networks, scratch.data(), nullptr, nullptr, 0, {}};
    for (size_t row = 0; row < n;) {
      const size_t left = n - row;
      const size_t nb = n <= kSingles ? 1 : left > 48 ? 64 : left > 16 ? 32 : 16;
      const size_t rows = left < nb ? left : nb;
      f.block = {0, nb, rows};
      for (size_t i = 0; i < plan.inputs.size(); ++i)
        if (plan.input_values[i] >= 0)
          load_block(plan.inputs[i], columns[i], row, rows, nb, f.to(plan.input_values[i]));
      run_block(f);
      store(f, asked, chosen(asked).outputs, row, out);
      row += rows;
    }
  }

 private:
  struct Part {
    Outputs outputs;
    Plan plan;
  };

  static void check(const Program& program) {
    if (program.networks.empty() || program.networks.size() > kMaxNetworks)
      throw Error("ProgramError", "networks", "1 to 8 networks that act",
                  std::to_string(program.networks.size()));
    if (program.outputs.empty() || program.outputs.size() > kMaxOutputs)
      throw Error("ProgramError", "outputs", "1 to 8", std::to_string(program.outputs.size()));
    for (const Op& op : program.ops)
      if (lowering::is_gradient(op.kind))
        throw Error("ProgramError", "ops", "no gradient in a policy", "one");
  }

  static bool reads_noise(const Plan& plan) {
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      if (plan.inputs[i].is_noise && plan.input_values[i] >= 0) return true;
    return false;
  }

  void add_plan(const Program& program, Outputs outputs) {
    Program part = program;
    part.outputs.clear();
    for (size_t i = 0; i < program.outputs.size(); ++i)
      if (outputs >> i & 1) part.outputs.push_back(program.outputs[i]);
    plans_.push_back({outputs, lower(part, gemm_ == GemmKind::kOwn)});
  }

  const Plan& whole() const { return plans_.back().plan; }

  // The first plan that has all of `asked`; larger ones come later.
  const Part& chosen(Outputs asked) const {
    for (const Part& part : plans_)
      if ((part.outputs & asked) == asked) return part;
    return plans_.back();
  }

  void store(const Frame& f, Outputs asked, Outputs made, size_t row, void* const* out) const {
    size_t at = 0;
    for (size_t i = 0; made >> i; ++i) {
      if (asked >> i & 1) store(f, f.plan.outputs[at].value, row, out[i]);
      at += made >> i & 1;
    }
  }

  static void store(const Frame& f, int value, size_t row, void* to) {
    const Value& v = f.plan.values[value];
    const float* x = f.at(value);
    for (size_t r = 0; r < f.block.rows; ++r)
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
  size_t size_ = 0;
  std::vector<size_t> offsets_;
  std::vector<std::string> names_;
  std::vector<Part> plans_;
  Outputs all_ = 0;
};

}  // namespace copal
