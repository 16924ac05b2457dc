// SPDX-License-Identifier: MIT
// What a learner carries from one update to the next, and what one phase of it needs.
//
// Cost: plain data. Limits: vectors are padded with zeros to whole cache lines, `size` counts the
// real floats. Thread-safety: that of its Learner.
//
//   NetworkState  p                           one for each network of the Update
//   TrainedState  m, v, steps, saved p m v t  one for each network with an optimiser
//   PhaseState    plan, an executor and a share of the gradient for each learner
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "executor.hpp"
#include "program.hpp"

namespace copal {

// An uninitialised tail would turn into NaN in a whole vector: `Aligned` zeroes it.
inline size_t padded_floats(size_t n) { return (n + 15) / 16 * 16; }

struct NetworkState {
  NetworkState(std::string name, size_t size)
      : name(std::move(name)), size(size), p(padded_floats(size)) {}
  std::string name;
  size_t size;
  Aligned<float> p;
  uint64_t version = 0;  // changes so far; of a copy: of what it is a copy of
};

struct TrainedState {
  TrainedState(size_t network, size_t size)
      : network(network), m(padded_floats(size)), v(padded_floats(size)) {}
  size_t network;  // index of its NetworkState
  Aligned<float> m, v;
  uint64_t steps = 0;
  Aligned<float> saved_p, saved_m, saved_v, saved_follower;  // as before the update under way
  float* follower = nullptr;                                 // what saved_follower is a copy of
  uint64_t saved_steps = 0;
  bool saved = false;
};

// One learner's verdict on its rows.
struct alignas(64) ShareStatus {
  int bad_output = -1;  // whose sum is not finite
  double squares = 0;   // of its share of the gradient
};

struct PhaseState {
  Plan plan;
  AdamSettings optimiser;
  double max_grad_norm = 0;  // 0: no clipping
  size_t every = 1;
  std::vector<size_t> input_index;  // of the learner's inputs, for each input of the plan
  std::vector<const float*> networks;
  size_t trained = 0;
  int follower = -1;  // index of the target that is averaged in the same pass
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<Aligned<float>> shares;
  std::vector<const float*> share_data;
  std::vector<ShareStatus> status;
  std::vector<double> partial_squares;
  std::vector<ColumnView> columns;
  Aligned<float> td;  // of phases after the first, whose TD errors nobody sees
};

// First row and number of rows of learner l: the remainder goes to the first ones.
struct RowRange {
  size_t first, count;
};
inline RowRange rows_of(size_t l, size_t learners, size_t batch) {
  const size_t base = batch / learners, extra = batch % learners;
  return {l * base + std::min(l, extra), base + (l < extra ? 1 : 0)};
}

}  // namespace copal
