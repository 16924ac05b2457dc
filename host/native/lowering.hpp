// SPDX-License-Identifier: MIT
// Turns a Program into a Plan: checked, without dead operations, with fused products, and with a
// place for every buffer.
//
// Cost: O(operations * buffers), once. Limits: every shape is checked here, so that the executor
// never has to. Thread-safety: a Plan is immutable once built.
//
//   Program ops --check--> SSA values --drop dead, fuse dense+relu, grad_input+relu_grad-->
//     steps    run block by block; temporaries share memory by lifetime
//     sums     run after all blocks, over kept buffers, in the Program's order
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "aligned.hpp"
#include "program.hpp"
#include "segment.hpp"

namespace copal {

enum class Place { kTemporary, kKept, kConstant };

struct Value {
  std::string name;
  size_t width = 1;
  bool is_int = false;
  Place place = Place::kTemporary;
  size_t offset = 0;  // floats: in its arena (temporary, constant), or floats a padded row (kept)
};

struct Step {
  OpKind kind{};
  int op = -1;  // its position in the Program; of a fused one the product's
  int out = -1;
  std::vector<int> in;
  int network = -1;
  size_t weight = 0, fan_in = 0, fan_out = 0;
  std::ptrdiff_t bias = -1;
  bool relu = false;  // of dense
  int active = -1;    // of dense_grad_input: the relu output that masks it
  size_t offset = 0;  // of sum_over_rows and param; of slice its start
  size_t panels = 0;  // of transpose and dense_grad_weight: floats a padded row before its panels
  bool add = false;   // of sums: the gradient's range was written before
};

struct Output {
  std::string role;
  int value;
};

struct Plan {
  std::string name;
  std::vector<Network> networks;
  std::vector<Buffer> inputs;
  std::vector<int> input_values;  // of `inputs`; -1 where nothing reads it
  std::vector<Value> values;
  std::vector<Step> steps, sums;
  std::vector<Output> outputs;
  size_t temporary = 0;         // floats of the temporaries of one block
  size_t kept = 0, panels = 0;  // floats a padded row
  Aligned<float> constants;     // each 64 times, one value a row
  bool clear_gradient = false;  // ranges overlap in part, so start from zeros
  size_t flops_per_row = 0;
};

namespace lowering {

inline bool is_gradient(OpKind k) {
  return k == OpKind::kDenseGradWeight || k == OpKind::kSumOverRows;
}
inline bool is_dense(OpKind k) {
  return k == OpKind::kDense || k == OpKind::kDenseGradInput || k == OpKind::kDenseGradWeight;
}
// Kinds that move bits and so keep int32 as it is.
inline bool moves_bits(OpKind k) {
  return k == OpKind::kConcat || k == OpKind::kSlice || k == OpKind::kGather || k == OpKind::kWhere;
}

class Lowering {
 public:
  Lowering(const Program& program, bool own_gemm) : program_(program), own_(own_gemm) {
    plan_.name = program.name;
    plan_.networks = program.networks;
    plan_.inputs = program.inputs;
  }

  Plan run() {
    define_inputs();
    for (size_t i = 0; i < program_.ops.size(); ++i) lower(program_.ops[i], i);
    find_outputs();
    drop_dead();
    fuse();
    split_sums();
    order_sums();
    if (own_) add_transposes();
    place();
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
    throw Error("ProgramError", where_, expected, got);
  }
  void need(bool ok, const std::string& expected, size_t got) const {
    if (!ok) fail(expected, std::to_string(got));
  }

  int define(const Buffer& b) {
    need(b.width >= 1 && b.width < size_t{1} << 31, "a width from 1 to 2^31 - 1", b.width);
    if (!ids_.emplace(b.name, static_cast<int>(plan_.values.size())).second)
      fail("a new buffer", "`" + b.name + "` again");
    plan_.values.push_back({b.name, b.width, b.is_int});
    return static_cast<int>(plan_.values.size()) - 1;
  }
  int find(const std::string& name) const {
    const auto it = ids_.find(name);
    if (it == ids_.end()) fail("inputs defined before", "`" + name + "`");
    return it->second;
  }

  void define_inputs() {
    where_ = "inputs";
    for (const Buffer& b : program_.inputs) plan_.input_values.push_back(define(b));
  }

  // The network's index; checks that [offset, offset + size) lies inside it.
  int network(const std::string& name, size_t offset, size_t size) const {
    for (size_t i = 0; i < program_.networks.size(); ++i) {
      if (program_.networks[i].name != name) continue;
      need(offset + size <= program_.networks[i].size,
           "offsets inside " + std::to_string(program_.networks[i].size) + " floats",
           offset + size);
      return static_cast<int>(i);
    }
    fail("a network of the Program", "`" + name + "`");
  }

  void lower(const Op& op, size_t position) {
    where_ = "ops[" + std::to_string(position) + "] " + kOpNames[static_cast<size_t>(op.kind)];
    Step s;
    s.kind = op.kind;
    s.op = static_cast<int>(position);
    for (const auto& name : op.inputs) s.in.push_back(find(name));
    check_count(s);
    if (is_gradient(op.kind) == op.output.has_value())
      fail("an output buffer unless it is a gradient", op.output ? op.output->name : "none");
    if (is_dense(op.kind)) lower_dense(op, s);
    if (op.kind == OpKind::kSumOverRows) {
      s.offset = op.offset;
      s.network = network(program_.gradient, op.offset, width(s, 0));
    }
    if (op.kind == OpKind::kParam)
      s.offset = op.offset, s.network = network(op.network, op.offset, op.output->width);
    if (op.kind == OpKind::kSlice) {
      s.offset = op.start;
      need(op.start < op.stop && op.stop <= width(s, 0), "a slice inside its input", op.stop);
    }
    if (!moves_bits(op.kind) && op.kind != OpKind::kScatter)
      for (int& in : s.in) in = as_float(in);
    if (op.kind == OpKind::kWhere) s.in[0] = as_float(s.in[0]);
    if (op.output) {
      check_types(op, s);
      need(op.output->width == out_width(op, s),
           "an output of width " + std::to_string(out_width(op, s)), op.output->width);
      s.out = define(*op.output);
      if (op.kind == OpKind::kConst) constants_.emplace_back(s.out, op.value);
    }
    if (op.kind != OpKind::kConst) all_.push_back(std::move(s));
  }

  void lower_dense(const Op& op, Step& s) {
    if (op.fan_in < 1 || op.fan_out < 1) fail("fan_in and fan_out of at least 1", "0");
    s.weight = op.weight, s.bias = op.bias, s.fan_in = op.fan_in, s.fan_out = op.fan_out;
    s.network = network(op.network, op.weight, op.fan_in * op.fan_out);
    if (op.bias >= 0) network(op.network, static_cast<size_t>(op.bias), op.fan_out);
    const size_t x = op.kind == OpKind::kDense ? op.fan_in : op.fan_out;
    need(width(s, 0) == x, "an input of width " + std::to_string(x), width(s, 0));
    if (op.kind != OpKind::kDenseGradWeight) return;
    need(width(s, 1) == op.fan_in, "a layer input of width " + std::to_string(op.fan_in),
         width(s, 1));
    if (op.network != program_.gradient)
      fail("the network `" + program_.gradient + "`", op.network);
  }

  void check_count(const Step& s) const {
    static constexpr int kCounts[] = {1, 1, 2, 1, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2,  3,
                                      1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, -1, 1};
    const int want = kCounts[static_cast<size_t>(s.kind)];
    if (want < 0) return need(!s.in.empty(), "at least one input", s.in.size());
    need(static_cast<int>(s.in.size()) == want, std::to_string(want) + " inputs", s.in.size());
  }

  size_t width(const Step& s, size_t i) const { return plan_.values[s.in[i]].width; }

  size_t out_width(const Op& op, const Step& s) const {
    switch (op.kind) {
      case OpKind::kDense:
        return op.fan_out;
      case OpKind::kDenseGradInput:
        return op.fan_in;
      case OpKind::kParam:
        return op.output->width;
      case OpKind::kScatter:
        return op.output->width;
      case OpKind::kConst:
      case OpKind::kGather:
      case OpKind::kRowMax:
      case OpKind::kRowArgmax:
      case OpKind::kRowSum:
        return 1;
      case OpKind::kSlice:
        return op.stop - op.start;
      case OpKind::kConcat: {
        size_t sum = 0;
        for (size_t i = 0; i < s.in.size(); ++i) sum += width(s, i);
        return sum;
      }
      default: {
        size_t widest = 1;
        for (size_t i = 0; i < s.in.size(); ++i) widest = std::max(widest, width(s, i));
        for (size_t i = 0; i < s.in.size(); ++i)
          need(width(s, i) == 1 || width(s, i) == widest,
               "inputs of width 1 or " + std::to_string(widest), width(s, i));
        return widest;
      }
    }
  }

  void check_types(const Op& op, const Step& s) {
    auto is_int = [&](size_t i) { return plan_.values[s.in[i]].is_int; };
    bool expected = op.kind == OpKind::kRowArgmax;
    if (op.kind == OpKind::kGather || op.kind == OpKind::kScatter) {
      if (!is_int(1)) fail("an int32 index", "`" + op.inputs[1] + "` of float32");
      need(width(s, 1) == 1, "an index of width 1", width(s, 1));
      if (op.kind == OpKind::kScatter) need(width(s, 0) == 1, "an input of width 1", width(s, 0));
    }
    if (op.kind == OpKind::kGather || op.kind == OpKind::kSlice || op.kind == OpKind::kScatter)
      expected = is_int(0);
    if (op.kind == OpKind::kConcat || op.kind == OpKind::kWhere) {
      const size_t first = op.kind == OpKind::kWhere ? 1 : 0;
      expected = is_int(first);
      for (size_t i = first; i < s.in.size(); ++i)
        if (is_int(i) != expected) fail("inputs of one dtype", "float32 and int32");
    }
    if (op.output->is_int != expected)
      fail(expected ? "an int32 output" : "a float32 output",
           op.output->is_int ? "int32" : "float32");
  }

  int as_float(int id) {
    if (!plan_.values[id].is_int) return id;
    const auto [it, fresh] = floats_.emplace(id, 0);
    if (!fresh) return it->second;
    Step s;
    s.kind = OpKind::kToFloat;
    s.in = {id};
    s.out = static_cast<int>(plan_.values.size());
    plan_.values.push_back({plan_.values[id].name + " as float32", plan_.values[id].width, false});
    it->second = s.out;
    all_.push_back(std::move(s));
    return it->second;
  }

  void find_outputs() {
    where_ = "outputs";
    for (const auto& [role, buffer] : program_.outputs)
      plan_.outputs.push_back({role, find(buffer)});
  }

  void drop_dead() {
    std::vector<bool> live(plan_.values.size());
    for (const Output& o : plan_.outputs) live[o.value] = true;
    std::vector<Step> kept;
    for (size_t i = all_.size(); i-- > 0;) {
      Step& s = all_[i];
      if (!is_gradient(s.kind) && !live[s.out]) continue;
      for (int in : s.in) live[in] = true;
      kept.push_back(std::move(s));
    }
    std::reverse(kept.begin(), kept.end());
    all_ = std::move(kept);
    for (int& v : plan_.input_values)
      if (!live[v]) v = -1;
  }

  // Uses of every value; an output counts, so that it is never fused away.
  std::vector<int> uses() const {
    std::vector<int> n(plan_.values.size());
    for (const Step& s : all_)
      for (int in : s.in) ++n[in];
    for (const Output& o : plan_.outputs) ++n[o.value];
    return n;
  }

  void fuse() {
    const std::vector<int> used = uses();
    std::vector<int> maker(plan_.values.size(), -1);
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].out >= 0) maker[all_[i].out] = static_cast<int>(i);
    std::vector<bool> gone(all_.size());
    for (size_t i = 0; i < all_.size(); ++i) {
      Step& s = all_[i];
      if (s.kind != OpKind::kRelu && s.kind != OpKind::kReluGrad) continue;
      const int from = maker[s.in[0]];
      if (from < 0 || used[s.in[0]] != 1) continue;
      Step& product = all_[from];
      if (s.kind == OpKind::kRelu && product.kind == OpKind::kDense) {
        product.relu = true;
        product.out = s.out;
        maker[s.out] = from;
        gone[i] = true;
      } else if (s.kind == OpKind::kReluGrad && product.kind == OpKind::kDenseGradInput &&
                 product.active < 0 && width(s, 0) == width(s, 1)) {
        Step fused = product;
        fused.active = s.in[1];
        fused.out = s.out;
        s = std::move(fused);
        gone[from] = true;
      }
    }
    size_t to = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (gone[i]) continue;
      if (to != i) all_[to] = std::move(all_[i]);
      ++to;
    }
    all_.resize(to);
  }

  void split_sums() {
    for (Step& s : all_) {
      if (is_dense(s.kind)) plan_.flops_per_row += 2 * s.fan_in * s.fan_out;
      (is_gradient(s.kind) ? plan_.sums : plan_.steps).push_back(std::move(s));
    }
  }

  void order_sums() {
    std::vector<std::pair<size_t, size_t>> seen;
    for (Step& s : plan_.sums) {
      const bool weight = s.kind == OpKind::kDenseGradWeight;
      const size_t first = weight ? s.weight : s.offset;
      const size_t last = first + (weight ? s.fan_in * s.fan_out : plan_.values[s.in[0]].width);
      for (const auto& [a, b] : seen) {
        if (a == first && b == last)
          s.add = true;
        else if (a < last && first < b)
          plan_.clear_gradient = true;
      }
      seen.emplace_back(first, last);
    }
    if (plan_.clear_gradient)
      for (Step& s : plan_.sums) s.add = true;
  }

  // After each step that makes a layer's input, one that lays it out for the weight gradient.
  void add_transposes() {
    std::map<int, size_t> panels;
    for (Step& s : plan_.sums) {
      if (s.kind != OpKind::kDenseGradWeight) continue;
      const auto [it, fresh] = panels.emplace(s.in[1], plan_.panels);
      if (fresh) plan_.panels += (plan_.values[s.in[1]].width + 15) / 16 * 16;
      s.panels = it->second;
    }
    std::vector<Step> steps;
    auto emit = [&](int value) {
      const auto it = panels.find(value);
      if (it == panels.end()) return;
      Step t;
      t.kind = OpKind::kTranspose;
      t.in = {value};
      t.panels = it->second;
      steps.push_back(std::move(t));
    };
    for (int v : plan_.input_values)
      if (v >= 0) emit(v);
    for (const auto& [value, constant] : constants_) emit(value);
    for (Step& s : plan_.steps) {
      const int out = s.out;
      steps.push_back(std::move(s));
      emit(out);
    }
    plan_.steps = std::move(steps);
  }

  void place() {
    for (const Step& s : plan_.sums) {
      keep(s.in[0]);
      if (!own_ && s.kind == OpKind::kDenseGradWeight) keep(s.in[1]);
    }
    plan_.constants = Aligned<float>(constants_.size() * kMaxBlock);
    for (size_t i = 0; i < constants_.size(); ++i) {
      const auto [id, number] = constants_[i];
      if (plan_.values[id].place == Place::kKept) {
        fill_kept(id, number);
        continue;
      }
      plan_.values[id].place = Place::kConstant;
      plan_.values[id].offset = i * kMaxBlock;
      std::fill_n(plan_.constants.data() + i * kMaxBlock, kMaxBlock, number);
    }
    place_temporaries();
  }

  void keep(int id) {
    Value& v = plan_.values[id];
    if (v.place == Place::kKept) return;
    v.place = Place::kKept;
    v.offset = plan_.kept;
    plan_.kept += v.width;
  }

  // A constant that feeds a sum over rows is written into its kept buffer block by block.
  void fill_kept(int id, float number) {
    Step s;
    s.kind = OpKind::kConst;
    s.out = id;
    s.offset = plan_.constants.size();
    Aligned<float> more(s.offset + kMaxBlock);
    std::copy(plan_.constants.begin(), plan_.constants.end(), more.data());
    std::fill_n(more.data() + s.offset, kMaxBlock, number);
    plan_.constants = std::move(more);
    plan_.steps.insert(plan_.steps.begin(), std::move(s));
  }

  // First fit over lifetimes. An output never shares memory with what its step reads.
  void place_temporaries() {
    const size_t n = plan_.values.size();
    const int end = static_cast<int>(plan_.steps.size());
    std::vector<int> born(n, -2), dies(n, -2);
    for (int v : plan_.input_values)
      if (v >= 0) born[v] = dies[v] = -1;
    for (int i = 0; i < end; ++i) {
      const Step& s = plan_.steps[i];
      if (s.out >= 0) born[s.out] = dies[s.out] = i;
      for (int in : s.in) dies[in] = i;
      if (s.active >= 0) dies[s.active] = i;
    }
    for (const Output& o : plan_.outputs) dies[o.value] = end;
    std::vector<int> order, placed;
    for (size_t v = 0; v < n; ++v)
      if (plan_.values[v].place == Place::kTemporary && born[v] >= -1)
        order.push_back(static_cast<int>(v));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return born[a] < born[b]; });
    auto floats = [&](int v) { return plan_.values[v].width * kMaxBlock + 16; };
    for (int v : order) {
      std::vector<std::pair<size_t, size_t>> taken;
      for (int w : placed)
        if (dies[w] >= born[v])
          taken.emplace_back(plan_.values[w].offset, plan_.values[w].offset + floats(w));
      std::sort(taken.begin(), taken.end());
      size_t at = 0;
      for (const auto& [a, b] : taken) {
        if (at + floats(v) <= a) break;
        at = std::max(at, b);
      }
      plan_.values[v].offset = at;
      plan_.temporary = std::max(plan_.temporary, at + floats(v));
      placed.push_back(v);
    }
  }

  const Program& program_;
  const bool own_;
  Plan plan_;
  std::string where_;
  std::map<std::string, int> ids_;
  std::map<int, int> floats_;
  std::vector<Step> all_;
  std::vector<std::pair<int, float>> constants_;
};

}  // namespace lowering

// Throws ProgramError with the operation that does not fit.
inline Plan lower(const Program& program, bool own_gemm) {
  return lowering::Lowering(program, own_gemm).run();
}

}  // namespace copal
