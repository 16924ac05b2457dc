// SPDX-License-Identifier: MIT
// Runs an Update: L learners share the batch, then the parameter server reduces and steps.
//
// Cost: the row programs' products over the threads, plus O(parameters * learners / threads).
// Limits: learners from 1 to the batch size, threads from 1 to the learners. The result depends on
// the number of learners (the order of one sum), never on that of threads. A bad update (NaN,
// infinity) throws and changes nothing. Thread-safety: every call locks the learner.
//
//   a phase:  rows -> shares | all done | norm of their sum | all done | Adam, averaging by pieces
//   update:   phases in order -> targets that no phase has averaged
//
// Any thread may run any learner's rows, or any piece.
#pragma once
#include <cmath>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "denormals.hpp"
#include "diagnosis.hpp"
#include "learner_build.hpp"
#include "optimiser.hpp"
#include "team.hpp"

namespace copal {

class Learner {
 public:
  // Throws ProgramError or ConfigError.
  Learner(Update update, size_t batch, size_t learners, size_t threads, const std::string& gemm)
      : update_(std::move(update)),
        batch_(batch),
        learners_(check_learners(batch, learners)),
        gemm_(gemm_kind(gemm)),
        team_(check_threads(threads, learners)) {
    building::check_update(update_);
    for (const Phase& p : update_.phases) building::add_networks(p.program, networks_);
    building::add_networks(update_.policy, networks_);
    inputs_ = building::unique_inputs(update_);
    streams_ = building::noise_streams(inputs_);
    for (const Network& n : update_.policy.networks)
      acting_.push_back(building::find_network(networks_, n.name, "policy"));
    for (size_t k = 0; k < update_.phases.size(); ++k) add_phase(k);
    for (const Target& t : update_.targets) {
      const size_t source = building::find_network(networks_, t.source, "source");
      const size_t target = building::find_network(networks_, t.target, "target");
      if (networks_[source].size != networks_[target].size)
        throw Error("ProgramError", "targets", "networks of one size", t.source + ", " + t.target);
      targets_.emplace_back(source, target);
    }
  }

  size_t batch() const { return batch_; }
  size_t learners() const { return learners_; }
  GemmKind gemm() const { return gemm_; }
  const Update& update() const { return update_; }
  const std::vector<Buffer>& inputs() const { return inputs_; }
  const std::vector<NetworkState>& networks() const { return networks_; }
  const std::vector<std::string>& metric_names() const { return metric_names_; }

  // Operations of the dense products of all phases, a multiply and an add counted as two.
  size_t flops() const {
    size_t sum = 0;
    for (const auto& p : phases_) sum += p->plan.flops_per_row * batch_;
    return sum;
  }

  // Calls f(first, count) for the rows of each learner, in parallel; f must not throw.
  template <class F>
  void split(F&& f) {
    std::lock_guard lock(mutex_);
    team_.for_each(learners_, [&](size_t l) {
      const RowRange rows = rows_of(l, learners_, batch_);
      f(rows.first, rows.count);
    });
  }

  // Runs one update on `columns`, in the order of `inputs()`, and writes the TD errors of the first
  // phase. A noise input without data is made from the update's number. Throws LearnerFailedError,
  // nothing changed then.
  void step(const ColumnView* columns, float* td) {
    std::lock_guard lock(mutex_);
    averaged_.assign(targets_.size(), false);
    for (TrainedState& t : trained_) t.saved = false;
    for (size_t k = 0; k < phases_.size(); ++k) {
      if ((updates_ + 1) % phases_[k]->every != 0) continue;
      const std::string problem = run_phase(k, columns, td);
      if (!problem.empty()) {
        const Finding found = find_bad(k, *phases_[k], updates_);
        restore();
        fail(k, updates_, problem, found);
      }
    }
    average_targets(updates_, averaged_);
    numbers_ = ++updates_;
  }

  // ---- For an AsyncLearner, which runs a phase as: read, run_rows, add; and at last: finish.

  // The number of an update that begins now, each once.
  uint64_t next_number() {
    std::lock_guard lock(mutex_);
    return numbers_++;
  }

  // Copies the networks that phase `k` reads, where they have changed, and returns how often the
  // phase's gradient was applied.
  uint64_t read(size_t k, const std::vector<size_t>& which, std::vector<NetworkState>& to) const {
    std::shared_lock lock(mutex_);
    for (size_t i : which) {
      if (to[i].version == networks_[i].version) continue;
      std::memcpy(to[i].p.data(), networks_[i].p.data(), to[i].p.size() * sizeof(float));
      to[i].version = networks_[i].version;
    }
    return applied_[k];
  }

  // The rows and the gradient of a whole batch; `p` is the caller's.
  void run_rows(PhaseState& p, uint64_t number, const ColumnView* columns, float* td) const {
    prepare(p, columns);
    run_share(p, 0, number, td);
  }

  // Applies the gradient in `p`, phase `k` of update `number`. Returns how many others were applied
  // since `read` returned `version`. Throws LearnerFailedError if it is bad, nothing changed then.
  uint64_t add(size_t k, PhaseState& p, uint64_t number, uint64_t version,
               std::vector<bool>& averaged) {
    const std::string problem = problem_of(p);
    if (!problem.empty()) fail(k, number, problem, find_bad(k, p, number));
    std::lock_guard lock(mutex_);
    apply(k, p, number, averaged);
    return applied_[k]++ - version;
  }

  void finish(uint64_t number, const std::vector<bool>& averaged) {
    std::lock_guard lock(mutex_);
    average_targets(number, averaged);
    ++updates_;
  }

  // Gradient of the first phase, averaged over the batch, and its TD errors; changes nothing.
  // Returns the mean of the output `loss`, NaN without one.
  double gradient(const ColumnView* columns, float* g, float* td) {
    std::lock_guard lock(mutex_);
    PhaseState& p = *phases_[0];
    prepare(p, columns);
    team_.for_each(learners_, [&](size_t l) { run_share(p, l, updates_, td); });
    const size_t size = networks_[trained_[p.trained].network].size;
    for (size_t i = 0; i < size; ++i)
      g[i] = summed(p.share_data.data(), learners_, i) / static_cast<float>(batch_);
    for (size_t i = 0; i < p.plan.outputs.size(); ++i)
      if (p.plan.outputs[i].role == "loss") return mean_output(p, i);
    return std::nan("");
  }

  // Calls f(parameters, size) for the network called `name`. Throws ProgramError.
  template <class F>
  void with_parameters(const std::string& name, F&& f) {
    std::lock_guard lock(mutex_);
    NetworkState& n = networks_[building::find_network(networks_, name, "network")];
    ++n.version;  // f may write
    f(n.p.data(), n.size);
  }
  // Calls f(parameters, size) for the policy's networks, one behind another in its order.
  template <class F>
  void with_acting(F&& f) {
    std::lock_guard lock(mutex_);
    if (acting_.size() == 1) return f(networks_[acting_[0]].p.data(), networks_[acting_[0]].size);
    size_t size = 0;
    for (size_t i : acting_) size += networks_[i].size;
    if (acting_vector_.size() != size) acting_vector_ = Aligned<float>(size);
    float* to = acting_vector_.data();
    for (size_t i : acting_) {
      std::memcpy(to, networks_[i].p.data(), networks_[i].size * sizeof(float));
      to += networks_[i].size;
    }
    f(acting_vector_.data(), size);
  }
  // Calls f(state, size) for the optimiser state of the trained network `name`.
  template <class F>
  void with_optimiser(const std::string& name, F&& f) {
    std::lock_guard lock(mutex_);
    for (TrainedState& t : trained_)
      if (networks_[t.network].name == name) return f(t, networks_[t.network].size);
    throw Error("ProgramError", "network", "a trained network", "`" + name + "`");
  }
  std::vector<std::string> trained() const {
    std::vector<std::string> names;
    for (const TrainedState& t : trained_) names.push_back(networks_[t.network].name);
    return names;
  }

  uint64_t updates() const {
    std::lock_guard lock(mutex_);
    return updates_;
  }
  void set_updates(uint64_t n) {
    std::lock_guard lock(mutex_);
    updates_ = numbers_ = n;
  }
  // Of the last update, in the order of `metric_names()`; NaN for a phase that has not run yet.
  std::vector<double> metrics() const {
    std::lock_guard lock(mutex_);
    return metrics_;
  }

 private:
  static size_t check_learners(size_t batch, size_t learners) {
    if (batch < 1) throw Error("ConfigError", "batch_size", "at least 1", "0");
    if (learners < 1 || learners > std::min(batch, Team::kMaxPieces))
      throw Error("ConfigError", "learners", "1 to " + std::to_string(batch) + " (batch_size)",
                  std::to_string(learners), "each learner needs a row of the batch");
    return learners;
  }
  static size_t check_threads(size_t threads, size_t learners) {
    if (threads < 1 || threads > learners)
      throw Error("ConfigError", "threads", "1 to " + std::to_string(learners) + " (learners)",
                  std::to_string(threads));
    return threads;
  }

  void add_phase(size_t k) {
    phases_.push_back(
        building::make_phase(update_, k, gemm_, batch_, learners_, inputs_, networks_));
    PhaseState& p = *phases_.back();
    const std::string& name = update_.phases[k].program.gradient;
    const size_t network = building::find_network(networks_, name, "gradient");
    const size_t size = networks_[network].size;
    applied_.push_back(0);
    p.partial_squares.resize(size / kRange + 1);
    p.trained = trained_.size();
    for (size_t i = 0; i < trained_.size(); ++i)
      if (trained_[i].network == network) p.trained = i;
    if (p.trained == trained_.size()) {
      trained_.emplace_back(network, size);
      if (update_.phases.size() > 1)
        for (Aligned<float> TrainedState::* x :
             {&TrainedState::saved_p, &TrainedState::saved_m, &TrainedState::saved_v,
              &TrainedState::saved_follower})
          trained_.back().*x = Aligned<float>(padded_floats(size));
    }
    const std::string prefix = k == 0 ? "" : update_.phases[k].program.name + "/";
    for (const Output& o : p.plan.outputs)
      metric_names_.push_back(prefix + (o.role == "td_error" ? "td_error_abs" : o.role));
    metric_names_.push_back(prefix + "grad_norm");
    metrics_.resize(metric_names_.size(), std::nan(""));
  }

  void prepare(PhaseState& p, const ColumnView* columns) const {
    for (size_t i = 0; i < p.input_index.size(); ++i) {
      p.columns[i] = columns[p.input_index[i]];
      p.columns[i].stream = streams_[p.input_index[i]];
    }
  }

  // The rows of learner `l` and its share of the gradient.
  void run_share(PhaseState& p, size_t l, uint64_t number, float* td) const {
    FlushDenormals flush;
    const RowRange rows = rows_of(l, learners_, batch_);
    Executor& e = *p.executors[l];
    e.run_rows(p.columns.data(), rows.first, p.networks.data(), {update_.seed, number},
               td + rows.first);
    e.sum_gradient(p.shares[l].data(), p.shares[l].size());
    ShareStatus& s = p.status[l];
    s = {};
    s.squares = sum_of_squares(&p.share_data[l], 1, 0, p.shares[l].size());
    for (size_t i = 0; i < p.plan.outputs.size(); ++i) {
      if (!std::isfinite(e.output_sums()[i]) && s.bad_output < 0)
        s.bad_output = static_cast<int>(i);
    }
  }

  static std::string problem_of(const PhaseState& p) {
    for (const ShareStatus& s : p.status) {
      if (s.bad_output >= 0) return "NaN or infinity in " + p.plan.outputs[s.bad_output].role;
      if (!std::isfinite(s.squares)) return "NaN or infinity in the gradient";
    }
    return "";
  }

  // What made the last run of `p`, phase `k`, fail; its networks are still as it saw them.
  Finding find_bad(size_t k, const PhaseState& p, uint64_t number) const {
    FlushDenormals flush;
    Diagnosis diagnosis(update_.phases[k].program, p.plan, gemm_, p.networks.data(),
                        p.columns.data(), {update_.seed, number});
    for (size_t l = 0; l < p.executors.size(); ++l) {
      const RowRange rows = rows_of(l, p.executors.size(), batch_);
      diagnosis.run(rows.first, rows.count);
    }
    return diagnosis.finding(p.shares);
  }

  [[noreturn]] void fail(size_t k, uint64_t number, const std::string& problem,
                         const Finding& found) const {
    throw LearnerFailed(
        "phases[" + std::to_string(k) + "] " + update_.phases[k].program.name,
        "finite numbers in update " + std::to_string(number),
        problem + ", first from " + found.text,
        "nothing of this phase was applied; look for NaN in the batch, lower the learning rate "
        "or set max_grad_norm",
        found.rows);
  }

  // Empty if all is well, else what is not finite; then nothing was applied.
  std::string run_phase(size_t k, const ColumnView* columns, float* td) {
    PhaseState& p = *phases_[k];
    prepare(p, columns);
    float* to = k == 0 ? td : p.td.data();
    team_.for_each(learners_, [&](size_t l) { run_share(p, l, updates_, to); });
    std::string problem = problem_of(p);
    if (problem.empty()) {
      apply(k, p, updates_, averaged_);
      ++applied_[k];
    }
    return problem;
  }

  // Clips the sum of the shares in `p`, steps, and averages a target that follows.
  void apply(size_t k, PhaseState& p, uint64_t number, std::vector<bool>& averaged) {
    TrainedState& t = trained_[phases_[k]->trained];
    NetworkState& net = networks_[t.network];
    const bool follows = p.follower >= 0 && (number + 1) % update_.targets[p.follower].every == 0;
    ReduceTarget to{net.p.data(), t.m.data(), t.v.data(), nullptr, 0};
    if (follows) {
      NetworkState& follower = networks_[targets_[p.follower].second];
      to.follower = follower.p.data();
      to.tau = static_cast<float>(update_.targets[p.follower].tau);
      ++follower.version;
    }
    const AdamStep adam = AdamStep::of(p.optimiser, t.steps + 1);
    const bool save = phases_.size() > 1 && !t.saved;
    const float scale = gradient_scale(p, net.p.size());
    for_ranges(net.p.size(), [&](size_t first, size_t last) {
      FlushDenormals flush;
      if (save) save_range(t, to, first, last);
      adam_range(p.share_data.data(), learners_, scale, to, adam, first, last);
    });
    if (save) t.saved = true, t.saved_steps = t.steps, t.follower = to.follower;
    ++t.steps, ++net.version;
    if (follows) averaged[p.follower] = true;
    note_metrics(k, p);
  }

  // 1 / batch, smaller where the averaged gradient is clipped.
  float gradient_scale(PhaseState& p, size_t floats) {
    const float scale = 1.f / static_cast<float>(batch_);
    if (p.max_grad_norm <= 0) return scale;
    double squares = p.status[0].squares;
    if (learners_ > 1) {
      for_ranges(floats, [&](size_t first, size_t last) {
        p.partial_squares[first / kRange] =
            sum_of_squares(p.share_data.data(), learners_, first, last);
      });
      squares = 0;
      for (double x : p.partial_squares) squares += x;
    }
    const double norm = std::sqrt(squares) / static_cast<double>(batch_);
    const double clip = norm > 0 ? p.max_grad_norm / norm : 1;
    return clip < 1 ? static_cast<float>(clip / static_cast<double>(batch_)) : scale;
  }

  // Calls f(first, last) on ranges of kRange floats, in parallel; `floats` is a multiple of 16.
  template <class F>
  void for_ranges(size_t floats, F&& f) {
    const size_t count = (floats + kRange - 1) / kRange;
    for (size_t base = 0; base < count; base += Team::kMaxPieces)
      team_.for_each(std::min(Team::kMaxPieces, count - base), [&](size_t i) {
        f((base + i) * kRange, std::min(floats, (base + i + 1) * kRange));
      });
  }

  static void save_range(TrainedState& t, const ReduceTarget& from, size_t first, size_t last) {
    auto copy = [&](Aligned<float>& to, const float* x) {
      std::memcpy(to.data() + first, x + first, (last - first) * sizeof(float));
    };
    copy(t.saved_p, from.p), copy(t.saved_m, from.m), copy(t.saved_v, from.v);
    if (from.follower) copy(t.saved_follower, from.follower);
  }

  void restore() {
    for (NetworkState& n : networks_) ++n.version;
    for (TrainedState& t : trained_) {
      if (!t.saved) continue;
      NetworkState& net = networks_[t.network];
      std::memcpy(net.p.data(), t.saved_p.data(), net.p.size() * sizeof(float));
      std::memcpy(t.m.data(), t.saved_m.data(), net.p.size() * sizeof(float));
      std::memcpy(t.v.data(), t.saved_v.data(), net.p.size() * sizeof(float));
      if (t.follower)
        std::memcpy(t.follower, t.saved_follower.data(), net.p.size() * sizeof(float));
      t.steps = t.saved_steps;
    }
  }

  // Averages, in order, the targets that no phase has averaged on its way.
  void average_targets(uint64_t number, const std::vector<bool>& averaged) {
    for (size_t i = 0; i < targets_.size(); ++i) {
      const Target& t = update_.targets[i];
      if (averaged[i] || (number + 1) % t.every != 0) continue;
      NetworkState& source = networks_[targets_[i].first];
      NetworkState& target = networks_[targets_[i].second];
      ++target.version;
      for_ranges(target.p.size(), [&](size_t first, size_t last) {
        average_range(target.p.data(), source.p.data(), static_cast<float>(t.tau), first, last);
      });
    }
  }

  double mean_output(const PhaseState& p, size_t i) const {
    double sum = 0;
    for (const auto& e : p.executors) sum += e->output_sums()[i];
    return sum / static_cast<double>(batch_ * p.plan.values[p.plan.outputs[i].value].width);
  }

  // The norm of the gradient is exact with one learner, else that of the shares together, a bound.
  void note_metrics(size_t k, const PhaseState& p) {
    size_t at = 0;
    for (size_t j = 0; j < k; ++j) at += phases_[j]->plan.outputs.size() + 1;
    for (size_t i = 0; i < p.plan.outputs.size(); ++i) metrics_[at++] = mean_output(p, i);
    double norm = 0;
    for (const ShareStatus& s : p.status) norm += std::sqrt(s.squares);
    metrics_[at] = norm / static_cast<double>(batch_);
  }

  static constexpr size_t kRange = 8192;

  const Update update_;
  const size_t batch_, learners_;
  const GemmKind gemm_;
  mutable std::shared_mutex mutex_;
  std::vector<NetworkState> networks_;
  std::vector<TrainedState> trained_;
  std::vector<std::unique_ptr<PhaseState>> phases_;
  std::vector<std::pair<size_t, size_t>> targets_;  // source and target, indices of networks_
  std::vector<Buffer> inputs_;
  std::vector<size_t> streams_, acting_;  // of inputs_; the policy's networks
  Aligned<float> acting_vector_;          // used if there are several
  std::vector<bool> averaged_;
  std::vector<std::string> metric_names_;
  std::vector<double> metrics_;
  std::vector<uint64_t> applied_;       // gradients of each phase
  uint64_t updates_ = 0, numbers_ = 0;  // done, begun
  Team team_;
};

}  // namespace copal
