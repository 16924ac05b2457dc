// SPDX-License-Identifier: MIT
// A fixed set of threads that run one function together, the caller being the first of them.
//
// Cost: two meetings a run; nothing with one thread. Limits: the function must not throw.
// Thread-safety: one `run` at a time.
//
//   caller    run(f): f(0) ---- meet ---- ... return
//   worker 1  asleep  f(1) ---- meet ---- ... asleep
#pragma once
#include <cstddef>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "barrier.hpp"

namespace copal {

class Team {
 public:
  explicit Team(size_t threads) : threads_(threads), barrier_(static_cast<int>(threads)) {
    for (size_t id = 1; id < threads; ++id) workers_.emplace_back([this, id] { work(id); });
  }
  ~Team() {
    call_ = nullptr;
    meet();
    for (std::thread& t : workers_) t.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  size_t size() const { return threads_; }

  // Runs f(0) here and f(1) ... f(size - 1) on the workers; returns when all are done.
  template <class F>
  void run(F&& f) {
    function_ = &f;
    call_ = [](const void* function, size_t id) {
      (*static_cast<const std::remove_reference_t<F>*>(function))(id);
    };
    meet();
    f(0);
    meet();
  }

  // Called by every thread within `run`: none goes on before all have come.
  void meet() {
    if (threads_ > 1) barrier_.wait();
  }

 private:
  void work(size_t id) {
    for (;;) {
      meet();
      if (!call_) return;
      call_(function_, id);
      meet();
    }
  }

  const size_t threads_;
  Barrier barrier_;
  const void* function_ = nullptr;
  void (*call_)(const void*, size_t) = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace copal
