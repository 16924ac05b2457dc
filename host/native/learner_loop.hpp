// SPDX-License-Identifier: MIT
// A learner's life without Python: wait for the gate, sample, update, report the TD errors,
// publish.
//
// Cost: an update, a sample and a priority update an iteration; memory for one batch, allocated
// once. Limits: one loop a learner; the replay is seen through `schema`, `sample` and
// `update_priorities`. Thread-safety: start, stop, pause, resume and run_once belong to one
// controlling thread; counters may be read by any.
//
//   gate.acquire_update -> replay.sample -> learner.step -> replay.update_priorities
//         ^                                                            |
//         +---------- gate.complete_update <- store.publish <----------+
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "learner.hpp"
#include "ratio_gate.hpp"
#include "schema.hpp"
#include "weight_store.hpp"

namespace copal {

struct LoopSettings {
  double beta_start = 0.4, beta_end = 1.0;
  uint64_t beta_updates = 1;  // updates from beta_start to beta_end
};

struct LoopCounters {
  uint64_t updates = 0, stale = 0, published = 0;
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
    target_.column.resize(replay.schema().size(), nullptr);
    ids_ = Aligned<uint64_t>(learner.batch());
    td_ = Aligned<float>(learner.batch());
    weights_ = Aligned<float>(learner.batch());
    target_.id = ids_.data();
    target_.weight = weights_.data();
    for (const Buffer& b : learner.inputs()) connect(b);
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
  void run_once() {
    const double t0 = now();
    replay_.sample(learner_.batch(), static_cast<float>(beta()), target_,
                   [&](auto&& part) { learner_.split(part); });
    const double t1 = now();
    learner_.step(views_.data(), td_.data());
    const double t2 = now();
    const size_t stale = replay_.update_priorities(learner_.batch(), ids_.data(), td_.data());
    const double t3 = now();
    const bool published = publish_if_seen();
    const double t4 = now();
    std::lock_guard lock(counters_mutex_);
    ++counters_.updates;
    counters_.stale += stale;
    counters_.published += published;
    counters_.sample_s += t1 - t0;
    counters_.step_s += t2 - t1;
    counters_.priority_s += t3 - t2;
    counters_.publish_s += t4 - t3;
  }

  // Publishes the parameters as they are.
  void publish() {
    if (!store_) return;
    const uint64_t version = learner_.updates();
    learner_.with_acting([&](const float* p, size_t) { store_->publish(p, version); });
  }

  // Starts the thread. Throws ConfigError if it runs already.
  void start(RatioGate& gate) {
    if (thread_.joinable())
      throw Error("ConfigError", "start", "a loop that is stopped", "one that runs", "call stop()");
    gate_ = &gate;
    stop_ = paused_ = parked_ = finished_ = false;
    error_ = nullptr;
    thread_ = std::thread([this] { work(); });
  }

  // Ends after the update under way.
  void stop() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    gate_->interrupt_learner(true);
    changed_.notify_all();
    thread_.join();
    gate_->interrupt_learner(false);
  }

  // Returns between two updates; nothing changes until `resume`.
  void pause() {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    paused_ = true;
    gate_->interrupt_learner(true);
    changed_.wait(lock, [&] { return parked_ || finished_; });
  }
  void resume() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      paused_ = false;
    }
    gate_->interrupt_learner(false);
    changed_.notify_all();
  }

  // Waits until the loop has ended (gate closed or drained, or failure). False after `timeout_s`.
  bool join(double timeout_s) {
    if (!thread_.joinable()) return true;
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(std::clamp(timeout_s, 0.0, 1e8));
    return changed_.wait_for(lock, limit, [&] { return finished_; });
  }

  bool running() const {
    std::lock_guard lock(mutex_);
    return thread_.joinable() && !finished_;
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
  double beta() const {
    const double done = static_cast<double>(learner_.updates());
    const double part = std::min(1.0, done / static_cast<double>(settings_.beta_updates));
    return settings_.beta_start + part * (settings_.beta_end - settings_.beta_start);
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void check_settings() const {
    for (double b : {settings_.beta_start, settings_.beta_end})
      if (!(b >= 0 && b <= 1)) throw Error("ConfigError", "beta", "0 to 1", std::to_string(b));
    if (settings_.beta_updates < 1) throw Error("ConfigError", "beta_updates", "at least 1", "0");
  }

  // Gives the learner's input a column that `sample` fills.
  void connect(const Buffer& b) {
    const size_t n = learner_.batch();
    if (b.name == "weight") {
      views_.push_back({reinterpret_cast<const std::byte*>(weights_.data()), Dtype::f32});
      return;
    }
    const size_t i = replay_.schema().find(b.name);
    if (b.name == "discount" && i == Schema::npos) {
      discounts_ = Aligned<float>(n);
      target_.discount = discounts_.data();
      views_.push_back({reinterpret_cast<const std::byte*>(discounts_.data()), Dtype::f32});
      return;
    }
    if (i == Schema::npos && b.is_noise) {
      views_.push_back({});  // the learner makes it
      return;
    }
    if (i == Schema::npos)
      throw Error("SchemaError", b.name, "a column of the replay", "none of that name");
    const Column& column = replay_.schema()[i];
    check_loadable(b, column.dtype);
    if (column.items != b.width)
      throw Error("SchemaError", b.name, std::to_string(b.width) + " values a row",
                  std::to_string(column.items));
    columns_.emplace_back(n * column.bytes);
    target_.column[i] = columns_.back().data();
    views_.push_back({columns_.back().data(), column.dtype});
  }

  bool publish_if_seen() {
    if (!store_ || !store_->seen()) return false;
    publish();
    return true;
  }

  void work() {
    try {
      while (wait_turn()) {
        const double t0 = now();
        const bool go = gate_->acquire_update();
        add_wait(now() - t0);
        if (!go) {
          if (interrupted()) continue;
          break;
        }
        run_once();
        gate_->complete_update();
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
      if (error_) gate_->close();
    }
    changed_.notify_all();
  }

  // Parks while paused. False once stopped.
  bool wait_turn() {
    std::unique_lock lock(mutex_);
    if (paused_ && !stop_) {
      parked_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !paused_ || stop_; });
      parked_ = false;
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
  Target target_;
  std::vector<Aligned<std::byte>> columns_;
  std::vector<ColumnView> views_;
  Aligned<float> weights_, discounts_, td_;
  Aligned<uint64_t> ids_;
  mutable std::mutex mutex_, counters_mutex_;
  std::condition_variable changed_;
  bool stop_ = false, paused_ = false, parked_ = false, finished_ = false;
  std::exception_ptr error_;
  LoopCounters counters_;
  std::thread thread_;
};

}  // namespace copal
