// SPDX-License-Identifier: MIT
// Programs and Updates as plain structs, field by field what `copal.program` writes as JSON.
//
// Cost: plain data. Limits: buffer widths and offsets below 2^31. Thread-safety: immutable once
// filled. See `copal.program.OPS` for what each kind computes.
//
//   Update -> Phase -> Program -> Op -> buffers by name
//          -> Target              -> Network, one flat float32 vector
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace copal {

enum class OpKind {
  kDense,
  kDenseGradInput,
  kDenseGradWeight,
  kSumOverRows,
  kConst,
  kParam,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMinimum,
  kMaximum,
  kLess,
  kLessEqual,
  kEqual,
  kWhere,
  kNeg,
  kAbs,
  kSign,
  kExp,
  kLog,
  kTanh,
  kSqrt,
  kRelu,
  kReluGrad,
  kGather,
  kScatter,
  kRowMax,
  kRowArgmax,
  kRowSum,
  kConcat,
  kSlice,
  kToFloat,    // only of lowering: int32 buffer to float32
  kTranspose,  // only of lowering: rows of a layer's input for its weight gradient
};

// Names in the order of `OpKind`, without those of lowering.
inline constexpr const char* kOpNames[] = {"dense",
                                           "dense_grad_input",
                                           "dense_grad_weight",
                                           "sum_over_rows",
                                           "const",
                                           "param",
                                           "add",
                                           "sub",
                                           "mul",
                                           "div",
                                           "minimum",
                                           "maximum",
                                           "less",
                                           "less_equal",
                                           "equal",
                                           "where",
                                           "neg",
                                           "abs",
                                           "sign",
                                           "exp",
                                           "log",
                                           "tanh",
                                           "sqrt",
                                           "relu",
                                           "relu_grad",
                                           "gather",
                                           "scatter",
                                           "row_max",
                                           "row_argmax",
                                           "row_sum",
                                           "concat",
                                           "slice"};
inline constexpr size_t kOpCount = sizeof(kOpNames) / sizeof(*kOpNames);

// Throws ProgramError for a kind that this executor lacks.
inline OpKind op_kind(const std::string& name) {
  for (size_t i = 0; i < kOpCount; ++i)
    if (name == kOpNames[i]) return static_cast<OpKind>(i);
  throw Error("ProgramError", "kind", "an operation of this executor", "`" + name + "`");
}

struct Buffer {
  std::string name;
  size_t width = 1;
  bool is_int = false;    // int32 instead of float32
  bool is_noise = false;  // of an input: the learner makes it unless the batch has it
};

struct Op {
  OpKind kind{};
  std::vector<std::string> inputs;
  std::optional<Buffer> output;
  std::string network;
  size_t weight = 0, fan_in = 0, fan_out = 0;
  std::ptrdiff_t bias = -1;
  size_t offset = 0;           // of sum_over_rows and param
  size_t start = 0, stop = 0;  // of slice
  float value = 0;             // of const
};

struct Network {
  std::string name;
  size_t size = 0;
};

struct Program {
  std::string name;
  std::vector<Network> networks;
  std::vector<Buffer> inputs;
  std::vector<Op> ops;
  std::vector<std::pair<std::string, std::string>> outputs;  // role, buffer
  std::string gradient;                                      // empty for a policy
};

struct AdamSettings {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

struct Phase {
  Program program;
  AdamSettings optimiser;
  std::optional<double> max_grad_norm;
  size_t every = 1;
};

struct Target {
  std::string source, target;
  double tau = 0.005;
  size_t every = 1;
};

struct Update {
  std::string name;
  std::vector<Phase> phases;
  std::vector<Target> targets;
  Program policy;
  uint64_t seed = 0;  // of the noise
};

}  // namespace copal
