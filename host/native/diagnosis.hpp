// SPDX-License-Identifier: MIT
// Finds what made an update fail: runs a phase's rows again and follows NaN and infinity back to
// the operation, input or parameter that they came from.
//
// Cost: one more row program, after a failure only. Limits: an infinity that a later operation
// takes away (a branch of `where` that is not chosen) is no cause; where several rows failed for
// different reasons the earliest operation is named. Thread-safety: pure.
//
//   value, row  -->  finite: no cause       bad: earliest cause among its bad inputs, else the
//                                           operation that made it
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "executor.hpp"

namespace copal {

// The cause of a failure in words, and the rows of the batch that it is in.
struct Finding {
  std::string text;
  std::vector<size_t> rows;
};

// An update failed and changed nothing; `rows` are those of the batch that are to blame, if known.
struct LearnerFailed : Error {
  LearnerFailed(std::string field, std::string expected, std::string got, std::string hint,
                std::vector<size_t> rows)
      : Error("LearnerFailedError", std::move(field), std::move(expected), std::move(got),
              std::move(hint)),
        rows(std::move(rows)) {}

  // Throws the same with the ids, in the replay, of up to 8 of its rows.
  [[noreturn]] void rethrow_with(const uint64_t* ids) const {
    std::string text = got;
    for (size_t i = 0; i < rows.size() && i < 8; ++i)
      text += (i == 0 ? "; batch ids " : ", ") + std::to_string(ids[rows[i]]);
    throw LearnerFailed(field, expected, text, hint, rows);
  }

  std::vector<size_t> rows;
};

class Diagnosis {
 public:
  // Everything must outlive the diagnosis; `columns` are in the order of the plan's inputs.
  Diagnosis(const Program& program, const Plan& plan, GemmKind gemm, const float* const* networks,
            const ColumnView* columns, const NoiseKey& key)
      : program_(program),
        plan_(plan),
        columns_(columns),
        key_(key),
        temporary_(plan.temporary),
        kept_(plan.kept * kMaxBlock),
        cause_(plan.values.size()),
        frame_{plan, gemm, networks, temporary_.data(), kept_.data(), nullptr, kMaxBlock, {}} {
    for (auto& rows : cause_) rows.fill(kNone);
  }

  // Runs `count` rows from `first` on.
  void run(size_t first, size_t count) {
    for (Block b : cut_rows(count)) {
      const size_t row = first + b.first;
      frame_.block = {0, b.nb, b.rows};
      load_inputs(frame_, columns_, row, key_);
      for (size_t i = 0; i < plan_.inputs.size(); ++i)
        if (plan_.input_values[i] >= 0) note_input(i);
      for (const Step& s : plan_.steps) {
        if (s.kind == OpKind::kTranspose) continue;
        block_runner::step(frame_, s);
        note_step(s);
      }
      for (const Output& o : plan_.outputs) blame(o.value, row);
      for (const Step& s : plan_.sums)
        for (int in : s.in) blame(in, row);
    }
  }

  // The earliest cause of all rows run; `shares` are the learners' gradients.
  Finding finding(const std::vector<Aligned<float>>& shares) {
    for (size_t i = 0; i < plan_.networks.size(); ++i) {
      const float* p = frame_.networks[i];
      for (size_t k = 0; k < plan_.networks[i].size; ++k)
        if (!std::isfinite(p[k]))
          return {"the parameters of `" + plan_.networks[i].name + "`, first in number " +
                      std::to_string(k),
                  {}};
    }
    if (best_ == kNone) return {sum_text(shares), {}};
    std::sort(rows_.begin(), rows_.end());
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
    if (best_ < 0)
      return {"the input `" + plan_.inputs[best_ + inputs()].name + "` in " + rows_text(), rows_};
    return {op_text(static_cast<size_t>(best_)) + " in " + rows_text(), rows_};
  }

 private:
  static constexpr int kNone = std::numeric_limits<int>::max();

  int inputs() const { return static_cast<int>(plan_.inputs.size()); }

  bool bad(int value, size_t row) const {
    const Value& v = plan_.values[value];
    if (v.is_int) return false;
    const float* x = frame_.at(value);
    for (size_t j = 0; j < v.width; ++j)
      if (!std::isfinite(x[j * frame_.block.nb + row])) return true;
    return false;
  }

  // Inputs count up to -1, the operations from 0.
  void note_input(size_t i) {
    for (size_t r = 0; r < frame_.block.rows; ++r)
      cause_[plan_.input_values[i]][r] =
          bad(plan_.input_values[i], r) ? static_cast<int>(i) - inputs() : kNone;
  }

  void note_step(const Step& s) {
    for (size_t r = 0; r < frame_.block.rows; ++r) {
      int cause = kNone;
      if (s.kind != OpKind::kConst && bad(s.out, r)) {
        for (size_t i = 0; i < s.in.size(); ++i)
          if (s.kind != OpKind::kWhere || taken(s, i, r))
            cause = std::min(cause, cause_[s.in[i]][r]);
        if (cause == kNone) cause = s.op;
      }
      cause_[s.out][r] = cause;
    }
  }

  // Whether a bad number of branch `i` of a `where` went into its output.
  bool taken(const Step& s, size_t i, size_t row) const {
    if (i == 0) return false;
    auto at = [&](int value, size_t j) {
      const size_t column = plan_.values[value].width > 1 ? j : 0;
      return frame_.at(value)[column * frame_.block.nb + row];
    };
    for (size_t j = 0; j < plan_.values[s.out].width; ++j)
      if ((at(s.in[0], j) != 0) == (i == 1) && !std::isfinite(at(s.in[i], j))) return true;
    return false;
  }

  void blame(int value, size_t first_row) {
    for (size_t r = 0; r < frame_.block.rows; ++r) {
      const int cause = cause_[value][r];
      if (cause == kNone || cause > best_) continue;
      if (cause < best_) rows_.clear();
      best_ = cause;
      rows_.push_back(first_row + r);
    }
  }

  std::string op_text(size_t op) const {
    const Op& o = program_.ops[op];
    return "ops[" + std::to_string(op) + "] " + kOpNames[static_cast<size_t>(o.kind)] +
           (o.output ? " (`" + o.output->name + "`)" : "");
  }

  std::string rows_text() const {
    std::string text = rows_.size() > 1 ? "rows " : "row ";
    for (size_t i = 0; i < rows_.size() && i < 8; ++i)
      text += (i ? ", " : "") + std::to_string(rows_[i]);
    return rows_.size() > 8 ? text + " ... (" + std::to_string(rows_.size()) + " rows)" : text;
  }

  // All rows are finite, their sum is not.
  std::string sum_text(const std::vector<Aligned<float>>& shares) const {
    for (const auto& share : shares)
      for (const Step& s : plan_.sums) {
        const bool weight = s.kind == OpKind::kDenseGradWeight;
        const size_t at = weight ? s.weight : s.offset;
        const size_t size = weight ? s.fan_in * s.fan_out : plan_.values[s.in[0]].width;
        for (size_t i = at; i < at + size; ++i)
          if (!std::isfinite(share[i]))
            return op_text(static_cast<size_t>(s.op)) + ", the gradient";
      }
    return "the square of the gradient's norm";
  }

  const Program& program_;
  const Plan& plan_;
  const ColumnView* columns_;
  const NoiseKey key_;
  Aligned<float> temporary_, kept_;
  std::vector<std::array<int, kMaxBlock>> cause_;
  Frame frame_;
  int best_ = kNone;
  std::vector<size_t> rows_;
};

}  // namespace copal
