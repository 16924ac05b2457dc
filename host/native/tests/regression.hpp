// SPDX-License-Identifier: MIT
// An Update for the stress tests: a network with one hidden layer learns to name numbers.
//
// Cost: a few thousand operations a row. Limits: no target network. Thread-safety: pure, save for
// what is locked by the Learner.
//
//   obs [5] -> dense -> relu [20] -> dense [3] -> the action's - goal = td_error
#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "../learner.hpp"

namespace copal::regression {

constexpr size_t kObs = 5, kHidden = 20, kActions = 3;
constexpr size_t kW2 = kObs * kHidden + kHidden;
constexpr size_t kSize = kW2 + kHidden * kActions + kActions;

inline Op dense(OpKind kind, std::vector<std::string> in, const char* out, size_t width,
                bool second) {
  Op o;
  o.kind = kind;
  o.inputs = std::move(in);
  if (out) o.output = Buffer{out, width};
  o.network = "q";
  o.weight = second ? kW2 : 0;
  o.fan_in = second ? kHidden : kObs;
  o.fan_out = second ? kActions : kHidden;
  o.bias = static_cast<std::ptrdiff_t>(o.weight + o.fan_in * o.fan_out);
  return o;
}

inline Op plain(OpKind kind, std::vector<std::string> in, const char* out, size_t width) {
  Op o;
  o.kind = kind;
  o.inputs = std::move(in);
  if (out) o.output = Buffer{out, width};
  o.offset = width;
  return o;
}

inline Update make_update() {
  Program p;
  p.name = "regression";
  p.networks = {{"q", kSize}};
  p.inputs = {{"obs", kObs}, {"action", 1, true}, {"goal", 1}};
  p.ops = {dense(OpKind::kDense, {"obs"}, "z", kHidden, false),
           plain(OpKind::kRelu, {"z"}, "h", kHidden),
           dense(OpKind::kDense, {"h"}, "q", kActions, true),
           plain(OpKind::kGather, {"q", "action"}, "chosen", 1),
           plain(OpKind::kSub, {"chosen", "goal"}, "td", 1),
           plain(OpKind::kScatter, {"td", "action"}, "dq", kActions),
           dense(OpKind::kDenseGradWeight, {"dq", "h"}, nullptr, 0, true),
           dense(OpKind::kDenseGradInput, {"dq"}, "dh", kHidden, true),
           plain(OpKind::kReluGrad, {"dh", "h"}, "dz", kHidden),
           dense(OpKind::kDenseGradWeight, {"dz", "obs"}, nullptr, 0, false),
           plain(OpKind::kSumOverRows, {"dz"}, nullptr, kObs * kHidden)};
  p.outputs = {{"td_error", "td"}};
  p.gradient = "q";
  Program policy;
  policy.networks = p.networks;
  policy.inputs = {p.inputs[0]};
  policy.ops = {p.ops[0], p.ops[1], p.ops[2]};
  policy.outputs = {{"q", "q"}};
  Phase phase{p, {}, 0.5, 1};
  return {"regression", {phase}, {}, policy};
}

inline void initialise(Learner& learner) {
  learner.with_parameters("q", [](float* p, size_t n) {
    for (size_t i = 0; i < n; ++i) p[i] = static_cast<float>(i * 37 % 101) / 200.f - 0.25f;
  });
}

inline std::vector<float> parameters(Learner& learner) {
  std::vector<float> copy;
  learner.with_parameters("q", [&](const float* p, size_t n) { copy.assign(p, p + n); });
  return copy;
}

}  // namespace copal::regression
