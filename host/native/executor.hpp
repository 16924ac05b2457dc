// SPDX-License-Identifier: MIT
// One learner's share of a row program: its rows in blocks, then its sums over all of them.
//
// Cost: the Program's dense products; memory O(kept widths * rows), allocated once. Limits: any
// number of rows from 1. The result depends on the rows alone, since blocks and sums have a fixed
// order and padding never counts. Thread-safety: one thread at a time an Executor.
//
//   for each block:  load inputs -> steps -> collect outputs
//   then:            gradient[...] = sums over the real rows of all blocks
#pragma once
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "block_runner.hpp"
#include "load.hpp"
#include "noise.hpp"

namespace copal {

// Brings the block's inputs, from row `first` of the batch on, to their places.
inline void load_inputs(const Frame& f, const ColumnView* columns, size_t first,
                        const NoiseKey& key) {
  for (size_t i = 0; i < f.plan.inputs.size(); ++i) {
    if (f.plan.input_values[i] < 0) continue;
    const Buffer& b = f.plan.inputs[i];
    float* to = f.to(f.plan.input_values[i]);
    if (columns[i].data)
      load_block(b, columns[i], first, f.block.rows, f.block.nb, to);
    else
      fill_normal(key, columns[i].stream, first, b.width, f.block.nb, to);
  }
}

class Executor {
 public:
  // `plan` must outlive the executor.
  Executor(const Plan& plan, GemmKind gemm, size_t rows)
      : plan_(plan),
        gemm_(gemm),
        blocks_(cut_rows(rows)),
        padded_(padded_rows(blocks_)),
        temporary_(plan.temporary),
        kept_(plan.kept * padded_),
        panels_(plan.panels * padded_),
        output_sums_(plan.outputs.size()),
        d_(blocks_.size()),
        y_(blocks_.size()) {}

  // Runs all rows. `columns` are in the order of the plan's inputs, starting at row `first`; the TD
  // error of row first + i goes to td[i]. `key` makes the noise of columns without data.
  void run_rows(const ColumnView* columns, size_t first, const float* const* networks,
                const NoiseKey& key, float* td) {
    std::fill(output_sums_.begin(), output_sums_.end(), 0.0);
    Frame f{plan_, gemm_, networks, temporary_.data(), kept_.data(), panels_.data(), padded_, {}};
    for (const Block& b : blocks_) {
      f.block = b;
      load_inputs(f, columns, first + b.first, key);
      run_block(f);
      collect(f, td + b.first);
    }
  }

  // Writes the sums over rows of the last `run_rows`. Ranges that no operation writes stay.
  void sum_gradient(float* g, size_t size) {
    if (plan_.clear_gradient) std::memset(g, 0, size * sizeof(float));
    for (const Step& s : plan_.sums) {
      segments(s.in[0], d_);
      if (s.kind == OpKind::kSumOverRows) {
        gemm::sum_rows(d_.data(), d_.size(), plan_.values[s.in[0]].width, g + s.offset, s.add);
        continue;
      }
#ifdef COPAL_OWN_GEMM
      if (gemm_ == GemmKind::kOwn) {
        avx512::grad_weight(d_.data(), d_.size(), padded_, s.fan_out, s.fan_in,
                            panels_.data() + s.panels * padded_, g + s.weight, s.add);
        continue;
      }
#endif
      segments(s.in[1], y_);
      eigen::grad_weight(d_.data(), y_.data(), d_.size(), s.fan_out, s.fan_in, g + s.weight, s.add);
    }
  }

  // Of each output, the sum over rows (and columns); of `td_error` the sum of |td|.
  const std::vector<double>& output_sums() const { return output_sums_; }

 private:
  void segments(int id, std::vector<Segment>& to) const {
    const Value& v = plan_.values[id];
    const float* base = kept_.data() + v.offset * padded_;
    for (size_t i = 0; i < blocks_.size(); ++i)
      to[i] = {base + v.width * blocks_[i].first, blocks_[i].nb, blocks_[i].rows};
  }

  void collect(const Frame& f, float* td) {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const Output& o = plan_.outputs[i];
      const Value& v = plan_.values[o.value];
      const float* x = f.at(o.value);
      const bool is_td = o.role == "td_error";
      if (is_td) std::memcpy(td, x, f.block.rows * sizeof(float));
      double sum = 0;
      for (size_t j = 0; j < v.width; ++j)
        for (size_t r = 0; r < f.block.rows; ++r) {
          const size_t at = j * f.block.nb + r;
          const float value =
              v.is_int ? static_cast<float>(elementwise::index_at({x, 1}, at)) : x[at];
          sum += is_td ? std::fabs(value) : value;
        }
      output_sums_[i] += sum;
    }
  }

  const Plan& plan_;
  const GemmKind gemm_;
  const std::vector<Block> blocks_;
  const size_t padded_;
  Aligned<float> temporary_, kept_, panels_;
  std::vector<double> output_sums_;
  std::vector<Segment> d_, y_;
};

}  // namespace copal
