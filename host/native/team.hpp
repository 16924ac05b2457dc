// SPDX-License-Identifier: MIT
// Runs independent pieces of work on a fixed set of threads, the caller being one of them.
//
// Cost: a few atomic operations a piece; nothing with one thread. Limits: at most 65,535 pieces,
// which must not throw. Thread-safety: one `for_each` at a time.
//
//   ticket  | epoch | lo | hi |      the caller claims piece lo from the front, workers hi - 1 from
//                                    the back, so a piece mostly meets the caches of its last time
//
// Pieces are claimed, not dealt out: while the system keeps a worker from its core the caller goes
// on alone. A waiter spins for some tens of microseconds, since the others are usually that close,
// then sleeps in the kernel.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "lock.hpp"

namespace copal {

// Waits until `x` differs from `old`, and returns what it became.
template <class T>
T wait_change(const std::atomic<T>& x, T old) {
  constexpr int kSpins = 1500;
  for (int i = 0; i < kSpins; ++i) {
    const T now = x.load(std::memory_order_acquire);
    if (now != old) return now;
    cpu_relax();
  }
  for (;;) {
    const T now = x.load(std::memory_order_acquire);
    if (now != old) return now;
    x.wait(old, std::memory_order_acquire);
  }
}

class Team {
 public:
  static constexpr size_t kMaxPieces = 0xffff;

  explicit Team(size_t threads) : threads_(threads) {
    for (size_t id = 1; id < threads; ++id) workers_.emplace_back([this] { work(); });
  }
  ~Team() {
    stop_.store(true);
    open(0);
    for (std::thread& t : workers_) t.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  size_t size() const { return threads_; }

  // Calls f(0) ... f(count - 1), each once, on any thread; returns when all are done.
  template <class F>
  void for_each(size_t count, F&& f) {
    if (threads_ == 1 || count < 2) {
      for (size_t i = 0; i < count; ++i) f(i);
      return;
    }
    function_ = &f;
    call_ = [](const void* function, size_t i) {
      (*static_cast<const std::remove_reference_t<F>*>(function))(i);
    };
    left_.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
    open(count);
    for (int i; (i = claim(true)) >= 0;) run(static_cast<size_t>(i));
    for (uint32_t left; (left = left_.load(std::memory_order_acquire)) != 0;)
      wait_change(left_, left);
  }

 private:
  static size_t low(uint64_t t) { return t >> 16 & 0xffff; }
  static size_t high(uint64_t t) { return t & 0xffff; }

  void open(size_t count) {
    const uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(epoch << 32 | count, std::memory_order_release);
    ticket_.notify_all();
  }

  // A piece that nobody has, or -1. Until it is done the caller cannot open other work.
  int claim(bool front) {
    uint64_t t = ticket_.load(std::memory_order_acquire);
    while (low(t) < high(t)) {
      const uint64_t next = front ? t + (1 << 16) : t - 1;
      if (ticket_.compare_exchange_weak(t, next, std::memory_order_acq_rel,
                                        std::memory_order_acquire))
        return static_cast<int>(front ? low(t) : high(t) - 1);
    }
    return -1;
  }

  void run(size_t i) {
    call_(function_, i);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
  }

  void work() {
    for (;;) {
      for (int i; (i = claim(false)) >= 0;) run(static_cast<size_t>(i));
      const uint64_t seen = ticket_.load(std::memory_order_acquire);
      if (stop_.load()) return;
      if (low(seen) >= high(seen)) wait_change(ticket_, seen);
    }
  }

  const size_t threads_;
  const void* function_ = nullptr;
  void (*call_)(const void*, size_t) = nullptr;
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> left_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace copal
