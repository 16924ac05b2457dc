// SPDX-License-Identifier: MIT
// Runs a grid on one CPU thread: block after block, all threads of a block as fibers.
//
// Cost: a switch a thread and barrier. Limits: 1,024 threads a block. Thread-safety: one launch at
// a time, held by a lock. A seed other than 0 shuffles the threads again at every turn. Shared
// memory starts as NaN in each block. What a GPU would hang on, or leave undefined, is an error:
//
//   threads of a block   READY -> AT_WARP  -> READY     once all lanes of the warp are there
//                              -> AT_BLOCK -> READY     once all threads are there, at one barrier
//                              -> DONE                  while others wait for it: error
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "fiber.h"

namespace cuda_cpu {

struct Index {
  unsigned x, y, z;
};

enum class State : std::uint8_t { READY, AT_WARP, AT_BLOCK, DONE };

constexpr std::size_t GUARD = 64;
constexpr unsigned char POISON = 0xff, FENCE = 0xa5;

class Grid {
 public:
  Index thread{}, block{}, threads{}, blocks{};

  unsigned char* shared() { return shared_.get(); }
  int lane() const { return current_ % 32; }

  // `function` plays one thread; returns an error, or nullptr.
  template <class F>
  const char* run(Index grid, Index size, std::size_t shared_bytes, unsigned seed, F& function) {
    const int n = static_cast<int>(size.x * size.y * size.z);
    if (n < 1 || n > 1024) return "expected 1 to 1024 threads a block";
    blocks = grid;
    threads = size;
    call_ = [](void* f) { (*static_cast<F*>(f))(); };
    function_ = &function;
    error_[0] = 0;
    prepare(n, shared_bytes);
    random_ = seed;
    for (block.z = 0; block.z < grid.z; ++block.z)
      for (block.y = 0; block.y < grid.y; ++block.y)
        for (block.x = 0; block.x < grid.x; ++block.x)
          if (!run_block(seed != 0)) return error_;
    return nullptr;
  }

  void block_barrier(int site) {
    if (site_ != 0 && site_ != site)
      fail("threads %d and %d wait at different barriers, lines %d and %d", waiting_, current_,
           site_, site);
    site_ = site;
    waiting_ = current_;
    ++at_block_;
    wait(State::AT_BLOCK);
  }

  void warp_barrier() {
    const int warp = current_ / 32;
    if (++at_warp_[warp] == lanes(warp)) {
      release_warp(warp);
      return;
    }
    wait(State::AT_WARP);
  }

  // What lane `from` of the warp gives in the same call.
  std::uint64_t exchange(std::uint64_t value, int from) {
    std::uint64_t* slots = slots_.data() + 64 * (current_ / 32) + 32 * (turn_[current_] ^= 1);
    slots[current_ % 32] = value;
    warp_barrier();
    return slots[from & 31];
  }

 private:
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete(p, std::align_val_t{128}); }
  };

  void prepare(int n, std::size_t shared_bytes) {
    while (static_cast<int>(fibers_.size()) < n) fibers_.push_back(std::make_unique<Fiber>());
    states_.assign(n, State::READY);
    turn_.assign(n, 0);
    order_.resize(n);
    at_warp_.assign((n + 31) / 32, 0);
    slots_.assign(64 * at_warp_.size(), 0);
    shared_bytes_ = shared_bytes;
#if defined(__SANITIZE_ADDRESS__)
    guard_ = 0;  // the sanitizer knows the end by itself
#else
    guard_ = GUARD;
#endif
    void* memory =
        ::operator new(std::max<std::size_t>(shared_bytes + guard_, 1), std::align_val_t{128});
    shared_.reset(static_cast<unsigned char*>(memory));
  }

  bool run_block(bool shuffle) {
    const int n = static_cast<int>(states_.size());
    std::memset(shared_.get(), POISON, shared_bytes_);
    std::memset(shared_.get() + shared_bytes_, FENCE, guard_);
    for (int i = 0; i < n; ++i) {
      states_[i] = State::READY;
      order_[i] = i;
      fibers_[i]->start(&Grid::entry);
    }
    std::fill(at_warp_.begin(), at_warp_.end(), 0);
    live_ = n;
    at_block_ = site_ = 0;
    while (live_ > 0) {
      if (shuffle)
        for (int i = n - 1; i > 0; --i) std::swap(order_[i], order_[next_random() % (i + 1)]);
      if (!run_turn()) return false;
    }
    for (std::size_t i = 0; i < guard_; ++i)
      if (shared_[shared_bytes_ + i] != FENCE)
        return fail("a write behind %d bytes of shared memory", static_cast<int>(shared_bytes_));
    return true;
  }

  // Every thread that can go on does so once, in order; then a full barrier lets all of them go.
  bool run_turn() {
    bool ran = false;
    for (const int i : order_) {
      if (states_[i] != State::READY) continue;
      ran = true;
      current_ = i;
      const unsigned x = threads.x, y = threads.y;
      thread = {i % x, i / x % y, i / (x * y)};
      fibers_[i]->resume();
      if (error_[0] != 0) return false;
      if (states_[i] == State::DONE) --live_;
    }
    if (at_block_ > 0 && at_block_ == static_cast<int>(states_.size())) {
      std::fill(states_.begin(), states_.end(), State::READY);
      at_block_ = site_ = 0;
      return true;
    }
    if (ran || live_ == 0) return true;
    if (at_block_ > 0)
      return fail("the barrier in line %d is reached by %d of %d threads", site_, at_block_,
                  static_cast<int>(states_.size()));
    return fail("deadlock: %d threads wait for lanes of their warp", live_);
  }

  int lanes(int warp) const { return std::min(32, static_cast<int>(states_.size()) - 32 * warp); }

  void release_warp(int warp) {
    at_warp_[warp] = 0;
    for (int i = 32 * warp; i < 32 * warp + lanes(warp); ++i)
      if (states_[i] == State::AT_WARP) states_[i] = State::READY;
  }

  void wait(State state) {
    states_[current_] = state;
    fibers_[current_]->pause();
  }

  static void entry();

  unsigned next_random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<unsigned>(random_ >> 33);
  }

  template <class... A>
  bool fail(const char* format, A... values) {
    const int used = std::snprintf(error_, sizeof error_, "block (%u, %u): ", block.x, block.y);
    std::snprintf(error_ + used, sizeof error_ - used, format, values...);
    return false;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<State> states_;
  std::vector<int> order_, at_warp_;
  std::vector<std::uint64_t> slots_;
  std::vector<unsigned char> turn_;
  std::unique_ptr<unsigned char[], Free> shared_;
  std::size_t shared_bytes_ = 0, guard_ = 0;
  void (*call_)(void*) = nullptr;
  void* function_ = nullptr;
  int current_ = 0, live_ = 0, at_block_ = 0, site_ = 0, waiting_ = 0;
  std::uint64_t random_ = 0;
  char error_[256] = "";
};

inline Grid grid;
inline std::mutex launching;

inline void Grid::entry() {
  Grid& g = grid;
  g.fibers_[g.current_]->entered();
  g.call_(g.function_);
  g.wait(State::DONE);
}

}  // namespace cuda_cpu
