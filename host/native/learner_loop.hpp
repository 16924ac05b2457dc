// SPDX-License-Identifier: MIT
// A learner's life without Python: wait for the gate, sample, update, report the TD errors,
// publish. In one thread, or, asynchronously, in several that each take batches of their own.
//
// Cost: an update, a sample and a priority update an iteration; memory for one batch a thread,
// allocated once. Limits: one loop a learner; the replay is seen through `schema`, `sample` and
// `update_priorities`. Thread-safety: start, stop, pause, resume and run_once belong to one
// controlling thread; counters may be read by any.
//
//   gate.acquire_update -> replay.sample -> learner.step -> replay.update_priorities
//         ^                                                            |
//         +---------- gate.complete_update <- store.publish <----------+
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "async_learner.hpp"
#include "loop_batch.hpp"
#include "ratio_gate.hpp"
#include "weight_store.hpp"

namespace copal {

struct LoopSettings {
  double beta_start = 0.4, beta_end = 1.0;
  uint64_t beta_updates = 1;  // updates from beta_start to beta_end
  size_t async_learners = 0;  // 0: the learner runs each update itself
};

// Seconds are sums over the threads.
struct LoopCounters {
  static constexpr size_t kStaleness = 9;  // 0, 1, ... 7, and 8 or more

  uint64_t updates = 0, stale = 0, published = 0;
  uint64_t staleness_sum = 0, staleness_max = 0;
  std::array<uint64_t, kStaleness> staleness{};  // updates by their staleness
  double sample_s = 0, step_s = 0, priority_s = 0, publish_s = 0, wait_s = 0;
};

// `Target` is the replay's SampleTarget.
template <class Replay, class Target>
class LearnerLoop {
 public:
  // Everything must outlive the loop; `store` may be nullptr. Throws SchemaError if the replay
  // lacks a column that the learner reads, ConfigError for a setting out of range.
  LearnerLoop(Learner& learner, Replay& replay, WeightStore* store, const LoopSettings& settings)
      : learner_(learner), replay_(replay), store_(store), settings_(settings) {
    check_settings();
    for (size_t i = 0; i < std::max<size_t>(1, settings.async_learners); ++i)
      seats_.push_back(std::make_unique<Seat>(learner, replay.schema()));
    if (settings.async_learners > 0)
      for (auto& seat : seats_) seat->learner = std::make_unique<AsyncLearner>(learner);
    if (store_)
      learner_.with_acting([&](const float*, size_t size) {
        if (store_->size() != size)
          throw Error("ConfigError", "store", std::to_string(size) + " floats of the policy",
                      std::to_string(store_->size()));
      });
  }
  ~LearnerLoop() { stop(); }
  LearnerLoop(const LearnerLoop&) = delete;
  LearnerLoop& operator=(const LearnerLoop&) = delete;

  // One update on this thread, with the schedule's beta: exactly what the loop does between waits.
  void run_once() { update(*seats_[0]); }

  // Publishes the parameters as they are.
  void publish() {
    std::lock_guard lock(publish_mutex_);
    publish_locked();
  }

  // Starts the threads. Throws ConfigError if they run already.
  void start(RatioGate& gate) {
    if (started())
      throw Error("ConfigError", "start", "a loop that is stopped", "one that runs", "call stop()");
    gate_ = &gate;
    stop_ = paused_ = false;
    parked_ = ended_ = 0;
    error_ = nullptr;
    for (auto& seat : seats_) seat->thread = std::thread([this, s = seat.get()] { work(*s); });
  }

  // Ends after the updates under way.
  void stop() {
    if (!started()) return;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    gate_->interrupt_learner(true);
    changed_.notify_all();
    for (auto& seat : seats_) seat->thread.join();
    gate_->interrupt_learner(false);
  }

  // Returns between two updates; nothing changes until `resume`.
  void pause() {
    if (!started()) return;
    std::unique_lock lock(mutex_);
    paused_ = true;
    gate_->interrupt_learner(true);
    changed_.wait(lock, [&] { return parked_ + ended_ == seats_.size(); });
  }
  void resume() {
    if (!started()) return;
    {
      std::lock_guard lock(mutex_);
      paused_ = false;
    }
    gate_->interrupt_learner(false);
    changed_.notify_all();
  }

  // Waits until the loop has ended (gate closed or drained, or failure). False after `timeout_s`.
  bool join(double timeout_s) {
    if (!started()) return true;
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(std::clamp(timeout_s, 0.0, 1e8));
    return changed_.wait_for(lock, limit, [&] { return ended_ == seats_.size(); });
  }

  bool running() const {
    std::lock_guard lock(mutex_);
    return started() && ended_ < seats_.size();
  }

  // Throws what ended the loop, if something did.
  void raise_if_failed() const {
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

  LoopCounters counters() const {
    std::lock_guard lock(counters_mutex_);
    return counters_;
  }

  // Importance exponent of the next update.
  double beta() const { return beta_of(learner_.updates()); }

 private:
  // What a thread of the loop has to itself.
  struct Seat {
    Seat(const Learner& learner, const Schema& schema) : batch(learner, schema) {}
    LoopBatch<Target> batch;
    std::unique_ptr<AsyncLearner> learner;
    std::thread thread;
  };

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void check_settings() const {
    for (double b : {settings_.beta_start, settings_.beta_end})
      if (!(b >= 0 && b <= 1)) throw Error("ConfigError", "beta", "0 to 1", std::to_string(b));
    if (settings_.beta_updates < 1) throw Error("ConfigError", "beta_updates", "at least 1", "0");
  }

  bool started() const { return seats_[0]->thread.joinable(); }

  double beta_of(uint64_t number) const {
    const double part =
        std::min(1.0, static_cast<double>(number) / static_cast<double>(settings_.beta_updates));
    return settings_.beta_start + part * (settings_.beta_end - settings_.beta_start);
  }

  // Runs update `number` on the seat's batch; returns its staleness.
  uint64_t step(Seat& seat, uint64_t number) {
    LoopBatch<Target>& batch = seat.batch;
    try {
      if (seat.learner) return seat.learner->step(number, batch.views.data(), batch.td.data());
      learner_.step(batch.views.data(), batch.td.data());
      return 0;
    } catch (const LearnerFailed& e) {
      e.rethrow_with(batch.ids());
    }
  }

  void update(Seat& seat) {
    LoopBatch<Target>& batch = seat.batch;
    const uint64_t number = seat.learner ? learner_.next_number() : learner_.updates();
    const auto beta = static_cast<float>(beta_of(number));
    const double t0 = now();
    if (seat.learner)
      replay_.sample(learner_.batch(), beta, batch.target);
    else
      replay_.sample(learner_.batch(), beta, batch.target,
                     [&](auto&& part) { learner_.split(part); });
    const double t1 = now();
    const uint64_t staleness = step(seat, number);
    const double t2 = now();
    const size_t stale = replay_.update_priorities(learner_.batch(), batch.ids(), batch.td.data());
    const double t3 = now();
    const bool published = publish_if_seen();
    const double t4 = now();
    std::lock_guard lock(counters_mutex_);
    ++counters_.updates;
    counters_.stale += stale;
    counters_.published += published;
    counters_.staleness_sum += staleness;
    counters_.staleness_max = std::max(counters_.staleness_max, staleness);
    ++counters_.staleness[std::min<uint64_t>(staleness, LoopCounters::kStaleness - 1)];
    counters_.sample_s += t1 - t0;
    counters_.step_s += t2 - t1;
    counters_.priority_s += t3 - t2;
    counters_.publish_s += t4 - t3;
  }

  void publish_locked() {
    if (!store_) return;
    const uint64_t version = learner_.updates();
    learner_.with_acting([&](const float* p, size_t) { store_->publish(p, version); });
  }

  // Whoever finds another thread publishing leaves it to that one.
  bool publish_if_seen() {
    if (!store_ || !store_->seen()) return false;
    std::unique_lock lock(publish_mutex_, std::try_to_lock);
    if (!lock || !store_->seen()) return false;
    publish_locked();
    return true;
  }

  void work(Seat& seat) {
    try {
      while (wait_turn()) {
        const double t0 = now();
        const bool go = gate_->acquire_update();
        add_wait(now() - t0);
        if (!go) {
          if (interrupted()) continue;
          break;
        }
        update(seat);
        gate_->complete_update();
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      gate_->close();
    }
    {
      std::lock_guard lock(mutex_);
      ++ended_;
    }
    changed_.notify_all();
  }

  // Parks while paused. False once stopped.
  bool wait_turn() {
    std::unique_lock lock(mutex_);
    if (paused_ && !stop_) {
      ++parked_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !paused_ || stop_; });
      --parked_;
    }
    return !stop_;
  }
  bool interrupted() const {
    std::lock_guard lock(mutex_);
    return paused_ || stop_ || !(gate_->closed() || gate_->drained_out());
  }
  void add_wait(double s) {
    std::lock_guard lock(counters_mutex_);
    counters_.wait_s += s;
  }

  Learner& learner_;
  Replay& replay_;
  WeightStore* store_;
  const LoopSettings settings_;
  RatioGate* gate_ = nullptr;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::mutex publish_mutex_;
  mutable std::mutex mutex_, counters_mutex_;
  std::condition_variable changed_;
  bool stop_ = false, paused_ = false;
  size_t parked_ = 0, ended_ = 0;  // threads
  std::exception_ptr error_;
  LoopCounters counters_;
};

}  // namespace copal
