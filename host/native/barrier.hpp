// SPDX-License-Identifier: MIT
// Where a fixed team of threads meets. A waiter spins for some tens of microseconds, since the
// others are usually that close, then sleeps in the kernel, so that it never burns a stolen core.
//
// Cost: O(1), one system call if somebody sleeps. Limits: the number of parties is fixed.
// Thread-safety: exactly `parties` threads call `wait` in each round.
//
//   round e:  count 0 -> 1 -> ... -> parties   the last one resets count and raises the epoch
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

namespace copal {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}

  // Returns once all parties have arrived; what each wrote before is visible to all.
  void wait() {
    const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
    if (count_.fetch_add(1, std::memory_order_acq_rel) == parties_ - 1) {
      count_.store(0, std::memory_order_relaxed);
      epoch_.store(epoch + 1, std::memory_order_release);
      epoch_.notify_all();
      return;
    }
    for (int i = 0; i < kSpins; ++i) {
      if (epoch_.load(std::memory_order_acquire) != epoch) return;
      cpu_relax();
    }
    while (epoch_.load(std::memory_order_acquire) == epoch) epoch_.wait(epoch);
  }

 private:
  static constexpr int kSpins = 2000;

  const int parties_;
  alignas(64) std::atomic<int> count_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};
};

}  // namespace copal
