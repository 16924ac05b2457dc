// SPDX-License-Identifier: MIT
// Holds the ratio of environment steps to updates. Actors ask before they step, the learner asks
// before it updates; whoever is ahead sleeps.
//
// With s steps taken or under way, i rows inserted, u updates done, b updates begun:
//   an actor may take n more steps while  s + n <= learning_starts + (u + 1) * interval + slack
//   a learner may update while            i     >= learning_starts + (b + 1) * interval
//
//   steps     |--- learning_starts ---|-- interval --|-- interval --| slack |
//   updates                                          1              2
//
// So (s - learning_starts) / u stays within (interval + slack) / u of the interval, and once the
// actors have stopped the learner ends at exactly floor((s - learning_starts) / interval) updates.
// If both slept, then s = i and slack < n, which `acquire_steps` refuses: no deadlock.
//
// Waking a thread costs more than a step, so a sleeper is woken for half the slack at once: an
// actor when so many steps are free, the learner when so many are due, when an actor has no room
// left, or after a millisecond.
//
// Cost: O(1) a call, no system call unless somebody sleeps. Limits: 64-bit counters, exact while
// updates * interval stays below 2^53. Thread-safety: any number of actors and learners.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "errors.hpp"

namespace copal {

class RatioGate {
 public:
  struct Counters {
    uint64_t env_steps;  // taken or under way
    uint64_t inserted;   // rows that are in the replay
    uint64_t updates;    // finished
  };

  // Throws ConfigError if a figure is out of range.
  RatioGate(double update_interval, uint64_t learning_starts, uint64_t slack_steps)
      : interval_(update_interval), starts_(learning_starts), slack_(slack_steps) {
    if (!(update_interval > 0) || !std::isfinite(update_interval))
      throw Error("ConfigError", "update_interval", "a finite number above 0",
                  std::to_string(update_interval));
    if (slack_steps < 1) throw Error("ConfigError", "slack_steps", "at least 1", "0");
  }

  // Waits until an actor may take n more steps, and reserves them. False: the gate is closed or
  // draining. Throws ConfigError if n is above the slack.
  bool acquire_steps(uint64_t n) {
    check_steps(n);
    std::unique_lock lock(mutex_);
    if (!refuses_steps() && !room(n)) {
      learner_.notify_one();
      actors_.wait(lock, [&] { return refuses_steps() || room(n); });
    }
    return take_steps(n);
  }

  // Like `acquire_steps`, but never waits: 1 reserved, 0 closed or draining, -1 no room yet.
  int try_acquire_steps(uint64_t n) {
    check_steps(n);
    std::lock_guard lock(mutex_);
    if (!refuses_steps() && !room(n)) return -1;
    return take_steps(n);
  }

  // Reports that n reserved steps are in the replay.
  void inserted(uint64_t n) {
    bool wake;
    {
      std::lock_guard lock(mutex_);
      check_reserved(n);
      inserted_ += n;
      wake = drained() || static_cast<double>(inserted_) >= next_update() + half_slack();
    }
    if (wake) learner_.notify_one();
  }

  // Gives back n reserved steps that were not taken.
  void cancel_steps(uint64_t n) {
    {
      std::lock_guard lock(mutex_);
      check_reserved(n);
      env_steps_ -= n;
    }
    actors_.notify_all();
    learner_.notify_one();
  }

  // Waits until the rows of the next update are there. False: closed, or drained to the end.
  bool acquire_update() {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return closed_ || due() || interrupted_ || drained(); };
    while (!learner_.wait_for(lock, kPatience, ready)) {
    }
    if (closed_ || interrupted_ || !due()) return false;
    ++begun_;
    if (due()) learner_.notify_one();  // there may be another learner
    return true;
  }

  // Reports that the update is done.
  void complete_update() {
    bool wake;
    {
      std::lock_guard lock(mutex_);
      begun_ = std::max(begun_, ++updates_);
      wake = static_cast<double>(env_steps_) <= next_update() + half_slack();
    }
    if (wake) actors_.notify_all();
  }

  // Updates that may be run now.
  uint64_t updates_due() const {
    std::lock_guard lock(mutex_);
    const double steps = static_cast<double>(inserted_) - static_cast<double>(starts_);
    const double allowed = std::floor(steps / interval_) - static_cast<double>(updates_);
    return allowed > 0 ? static_cast<uint64_t>(allowed) : 0;
  }

  // Refuses further steps; the learner finishes the updates that are due and then gets false.
  void drain() { set(draining_); }

  // Wakes everybody with false, now and ever after.
  void close() { set(closed_); }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

  // Whether the actors are refused, have reported all their steps, and no update is due.
  bool drained_out() const {
    std::lock_guard lock(mutex_);
    return drained() && !due();
  }

  // While on, `acquire_update` returns false at once: lets a learner loop leave its wait and look.
  void interrupt_learner(bool on) {
    {
      std::lock_guard lock(mutex_);
      interrupted_ = on;
    }
    learner_.notify_all();
  }

  Counters counters() const {
    std::lock_guard lock(mutex_);
    return {env_steps_, inserted_, updates_};
  }

  // Goes on from a checkpoint's counters; no step may be under way.
  void set_counters(uint64_t env_steps, uint64_t updates) {
    {
      std::lock_guard lock(mutex_);
      if (env_steps_ != inserted_)
        throw Error("ConfigError", "env_steps", "no step under way",
                    std::to_string(env_steps_ - inserted_) + " reserved",
                    "set the counters before the actors start");
      env_steps_ = inserted_ = env_steps;
      updates_ = begun_ = updates;
    }
    actors_.notify_all();
    learner_.notify_all();
  }

  uint64_t learning_starts() const { return starts_; }

 private:
  double next_update() const {
    return static_cast<double>(starts_) + static_cast<double>(updates_ + 1) * interval_;
  }
  double half_slack() const { return static_cast<double>(slack_ / 2); }
  bool room(uint64_t n) const {
    return static_cast<double>(env_steps_ + n) <= next_update() + static_cast<double>(slack_);
  }
  bool due() const {
    const double next = static_cast<double>(starts_) + static_cast<double>(begun_ + 1) * interval_;
    return static_cast<double>(inserted_) >= next;
  }
  bool drained() const { return draining_ && inserted_ == env_steps_; }
  bool refuses_steps() const { return closed_ || draining_; }
  bool take_steps(uint64_t n) {
    if (refuses_steps()) return false;
    env_steps_ += n;
    return true;
  }
  void check_steps(uint64_t n) const {
    if (n < 1 || n > slack_)
      throw Error("ConfigError", "n", "1 to " + std::to_string(slack_) + " (slack_steps)",
                  std::to_string(n), "build the gate with slack_steps of at least the largest n");
  }
  void check_reserved(uint64_t n) const {
    if (n > env_steps_ - inserted_)
      throw Error("ConfigError", "n",
                  "at most the " + std::to_string(env_steps_ - inserted_) + " reserved steps",
                  std::to_string(n), "call acquire_steps first");
  }
  void set(bool& flag) {
    {
      std::lock_guard lock(mutex_);
      flag = true;
    }
    actors_.notify_all();
    learner_.notify_all();
  }

  // Longest sleep of the learner beside updates that are due but too few to wake it for.
  static constexpr std::chrono::milliseconds kPatience{1};

  const double interval_;
  const uint64_t starts_, slack_;
  mutable std::mutex mutex_;
  std::condition_variable actors_, learner_;
  uint64_t env_steps_ = 0, inserted_ = 0, updates_ = 0, begun_ = 0;
  bool draining_ = false, closed_ = false, interrupted_ = false;
};

}  // namespace copal
