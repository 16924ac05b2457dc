// SPDX-License-Identifier: MIT
// Checks an Update and lays out the state of its networks and phases.
//
// Cost: once, at construction. Limits: throws ProgramError for what does not fit together.
// Thread-safety: pure.
//
//   phases' and policy's networks -> NetworkState      targets -> averaged in a phase's own pass
//   phases                        -> PhaseState                   where that changes no value
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "learner_state.hpp"
#include "lowering.hpp"

namespace copal::building {

inline size_t find_network(const std::vector<NetworkState>& networks, const std::string& name,
                           const char* field) {
  for (size_t i = 0; i < networks.size(); ++i)
    if (networks[i].name == name) return i;
  throw Error("ProgramError", field, "a network of the Update", "`" + name + "`");
}

inline void add_networks(const Program& program, std::vector<NetworkState>& networks) {
  for (const Network& n : program.networks) {
    const auto it = std::find_if(networks.begin(), networks.end(),
                                 [&](const NetworkState& s) { return s.name == n.name; });
    if (it == networks.end()) {
      networks.emplace_back(n.name, n.size);
    } else if (it->size != n.size) {
      throw Error("ProgramError", n.name, std::to_string(it->size) + " floats in every Program",
                  std::to_string(n.size));
    }
  }
}

// Every input of the phases once, in order of first use.
inline std::vector<Buffer> unique_inputs(const Update& update) {
  std::vector<Buffer> inputs;
  for (const Phase& phase : update.phases)
    for (const Buffer& b : phase.program.inputs) {
      const auto it = std::find_if(inputs.begin(), inputs.end(),
                                   [&](const Buffer& x) { return x.name == b.name; });
      if (it == inputs.end()) {
        inputs.push_back(b);
      } else if (it->width != b.width || it->is_int != b.is_int || it->is_noise != b.is_noise) {
        throw Error("ProgramError", b.name, "one width, dtype and source in every phase", "two");
      }
    }
  return inputs;
}

// For each of `inputs`, its number among the noises: the position in `Update.noises()`.
inline std::vector<size_t> noise_streams(const std::vector<Buffer>& inputs) {
  std::vector<size_t> streams;
  size_t next = 0;
  for (const Buffer& b : inputs) streams.push_back(b.is_noise ? next++ : 0);
  return streams;
}

inline void check_update(const Update& update) {
  if (update.phases.empty()) throw Error("ProgramError", "phases", "at least one", "none");
  for (const Phase& p : update.phases) {
    if (p.every < 1) throw Error("ProgramError", "every", "at least 1", "0");
    if (p.program.gradient.empty())
      throw Error("ProgramError", "gradient", "a network that the phase trains", "none");
    if (p.max_grad_norm && !(*p.max_grad_norm > 0))
      throw Error("ProgramError", "max_grad_norm", "above 0", std::to_string(*p.max_grad_norm));
    const AdamSettings& a = p.optimiser;
    if (!(a.learning_rate > 0 && std::isfinite(a.learning_rate) && a.eps > 0 &&
          std::isfinite(a.eps)))
      throw Error("ProgramError", "optimiser", "a finite learning_rate and eps above 0",
                  std::to_string(a.learning_rate) + " and " + std::to_string(a.eps));
    if (!(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1))
      throw Error("ProgramError", "optimiser", "beta1 and beta2 in [0, 1)",
                  std::to_string(a.beta1) + " and " + std::to_string(a.beta2));
  }
  if (update.phases[0].every != 1)
    throw Error("ProgramError", "phases[0].every", "1, since its TD errors are the priorities",
                std::to_string(update.phases[0].every));
  for (const Target& t : update.targets)
    if (!(t.tau > 0 && t.tau <= 1) || t.every < 1)
      throw Error("ProgramError", "targets", "0 < tau <= 1 and every >= 1",
                  "tau " + std::to_string(t.tau) + ", every " + std::to_string(t.every));
}

// The target that phase `k` may average while it still has the parameters in registers: nobody may
// look at the target between the phase and the end of the update. -1 without one.
inline int fused_target(const Update& update, size_t k) {
  const std::string& source = update.phases[k].program.gradient;
  for (size_t j = k + 1; j < update.phases.size(); ++j)
    if (update.phases[j].program.gradient == source) return -1;
  for (size_t i = 0; i < update.targets.size(); ++i) {
    const Target& t = update.targets[i];
    if (t.source != source || t.tau == 1) continue;
    bool free = true;
    for (const Phase& p : update.phases) free &= p.program.gradient != t.target;
    for (size_t j = k + 1; j < update.phases.size(); ++j)
      for (const Network& n : update.phases[j].program.networks) free &= n.name != t.target;
    for (size_t j = 0; j < update.targets.size(); ++j)
      free &=
          update.targets[j].source != t.target && (j == i || update.targets[j].target != t.target);
    if (free) return static_cast<int>(i);
  }
  return -1;
}

inline void check_td_error(const Plan& plan) {
  for (const Output& o : plan.outputs)
    if (o.role == "td_error" && (plan.values[o.value].width != 1 || plan.values[o.value].is_int))
      throw Error("ProgramError", "td_error", "float32 of width 1",
                  "width " + std::to_string(plan.values[o.value].width));
}

inline std::unique_ptr<PhaseState> make_phase(const Update& update, size_t k, GemmKind gemm,
                                              size_t batch, size_t learners,
                                              const std::vector<Buffer>& inputs,
                                              std::vector<NetworkState>& networks) {
  const Phase& phase = update.phases[k];
  auto s = std::make_unique<PhaseState>();
  s->plan = lower(phase.program, gemm == GemmKind::kOwn);
  check_td_error(s->plan);
  s->optimiser = phase.optimiser;
  s->max_grad_norm = phase.max_grad_norm.value_or(0);
  s->every = phase.every;
  s->follower = fused_target(update, k);
  for (const Buffer& b : phase.program.inputs)
    s->input_index.push_back(
        static_cast<size_t>(std::find_if(inputs.begin(), inputs.end(),
                                         [&](const Buffer& x) { return x.name == b.name; }) -
                            inputs.begin()));
  s->columns.resize(phase.program.inputs.size());
  for (const Network& n : phase.program.networks)
    s->networks.push_back(networks[find_network(networks, n.name, "networks")].p.data());
  const size_t size = networks[find_network(networks, phase.program.gradient, "gradient")].size;
  for (size_t l = 0; l < learners; ++l) {
    s->executors.push_back(
        std::make_unique<Executor>(s->plan, gemm, rows_of(l, learners, batch).count));
    s->shares.emplace_back(padded_floats(size));
  }
  for (const auto& share : s->shares) s->share_data.push_back(share.data());
  s->status.resize(learners);
  if (k > 0) s->td = Aligned<float>(batch);
  return s;
}

}  // namespace copal::building
