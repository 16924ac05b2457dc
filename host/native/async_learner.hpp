// SPDX-License-Identifier: MIT
// A learner that works beside others on whole batches of its own and gives its gradients to the
// parameter server, a Learner, as they come.
//
// Cost: an update's products on one thread; under the server's lock a copy of the networks that
// have changed and the optimiser's step. Memory: a copy of the networks and of the work arrays.
// Limits: the server has one learner. Thread-safety: one thread at a time an AsyncLearner.
//
//   server p(v) --copy--> p' --rows--> gradient --lock--> server p(v + s) -> p(v + s + 1)
//
// s, the staleness, is the number of gradients that others have put in between. With one learner it
// is 0 and every number equals the Learner's own.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "learner.hpp"

namespace copal {

class AsyncLearner {
 public:
  // `server` must outlive it. Throws ConfigError if the server shares out its batches itself.
  explicit AsyncLearner(Learner& server) : server_(server) {
    if (server.learners() != 1)
      throw Error("ConfigError", "async_learners", "a learner with learners = 1",
                  std::to_string(server.learners()), "asynchronous learners share no batch");
    const Update& update = server.update();
    for (const Phase& p : update.phases) building::add_networks(p.program, networks_);
    for (size_t k = 0; k < update.phases.size(); ++k) {
      phases_.push_back(building::make_phase(update, k, server.gemm(), server.batch(), 1,
                                             server.inputs(), networks_));
      reads_.emplace_back();
      for (const Network& n : update.phases[k].program.networks)
        reads_.back().push_back(building::find_network(networks_, n.name, "networks"));
    }
  }
  AsyncLearner(const AsyncLearner&) = delete;
  AsyncLearner& operator=(const AsyncLearner&) = delete;

  // Runs update `number`, which the server gave out; see Learner::step. Returns its staleness, the
  // largest of its phases. Throws LearnerFailedError: nothing bad has reached the server then.
  uint64_t step(uint64_t number, const ColumnView* columns, float* td) {
    uint64_t staleness = 0;
    averaged_.assign(server_.update().targets.size(), false);
    for (size_t k = 0; k < phases_.size(); ++k) {
      PhaseState& p = *phases_[k];
      if ((number + 1) % p.every != 0) continue;
      const uint64_t version = server_.read(k, reads_[k], networks_);
      server_.run_rows(p, number, columns, k == 0 ? td : p.td.data());
      staleness = std::max(staleness, server_.add(k, p, number, version, averaged_));
    }
    server_.finish(number, averaged_);
    return staleness;
  }

 private:
  Learner& server_;
  std::vector<NetworkState> networks_;  // in the order of the server's
  std::vector<std::unique_ptr<PhaseState>> phases_;
  std::vector<std::vector<size_t>> reads_;  // networks of each phase
  std::vector<bool> averaged_;
};

}  // namespace copal
