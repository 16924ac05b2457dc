// SPDX-License-Identifier: MIT
// Part of replay.hpp: drawing rows, weights, and new priorities.
//
// Cost: O(rows * log_K capacity), plus the copies. Limits: see replay.hpp. Threads: only the
// descents and the writes to the tree are under the lock; random numbers, copies and powers are
// outside.
//
//   masses -> lock shared { slots } -> ids -> copies -> torn? draw those again -> weights
//   [------------------------- each part of a batch, in parallel ----------] all
//
// Row i of a batch takes the batch's i-th random number, whoever draws it: where nobody inserts
// meanwhile the parts do not change the batch.
//
// Where inserters lap the buffer faster than a sampler copies, drawing again might never end; after
// a few rounds the sampler copies under the shared lock, which no inserter can reserve rows beside.
#pragma once
#include <cmath>
#include <thread>

#include "power.hpp"
#include "replay.hpp"

namespace copal {

namespace replay_detail {

// Work arrays of a calling thread, so that calls neither allocate nor share them.
struct Scratch {
  std::vector<double> mass;
  std::vector<uint64_t> slot, id;
  std::vector<float> priority;

  static Scratch& of_thread(size_t n) {
    thread_local Scratch s;
    if (s.mass.size() < n) s.mass.resize(n), s.slot.resize(n), s.id.resize(n), s.priority.resize(n);
    return s;
  }
};

inline constexpr int kRedrawRounds = 4;

}  // namespace replay_detail

struct Replay::Draw {
  double* mass;
  uint64_t* slot;
  uint64_t* id;
  float* priority;
};

inline void Replay::throw_empty() const {
  const uint64_t pending = pending_.load(std::memory_order_relaxed);
  const uint64_t rows = size();
  const std::string got = rows      ? std::to_string(rows) + " rows with priority 0"
                          : pending ? std::to_string(pending) + " rows that are not complete yet"
                                    : "no row";
  throw Error("EmptyReplayError", "replay", "at least one row with a priority above 0", got,
              rows      ? "give a row a priority above 0, or set eps above 0"
              : pending ? "a row can be drawn once its n-step return and next observation are "
                          "known: add more rows, or call end_episode()"
                        : "add rows first");
}

// Descends from given masses in [0, 1); at least a shared lock is held and the total is above 0.
inline void Replay::draw_locked(size_t from, size_t n, const Draw& d) const {
  const double total = tree_->total();
  for (size_t i = from; i < from + n; ++i) d.mass[i] *= total;
  tree_->descend(n, d.mass + from, d.slot + from, d.priority + from);
  const uint64_t base = reserved_.load(std::memory_order_relaxed) - head_;
  const uint64_t head = head_, capacity = config_.capacity;
  for (size_t i = from; i < from + n; ++i) {
    d.id[i] = base + d.slot[i] - (d.slot[i] >= head ? capacity : 0);
  }
}

// Draws with the random numbers from `counter` on. False: there is no row.
inline bool Replay::draw(uint64_t counter, size_t from, size_t n, const Draw& d) {
  random_.uniform(counter, n, d.mass + from);
  for (;;) {
    SharedGuard guard(lock_);
    if (tree_->total() > 0) [[likely]] {
      draw_locked(from, n, d);
      return true;
    }
    const bool coming = !writing_.empty();  // every row is being overwritten at this moment
    guard.unlock();
    if (!coming) return false;
    std::this_thread::yield();
  }
}

// Draws and copies row i under the shared lock, which keeps it whole.
inline void Replay::copy_locked(size_t i, const Draw& d, const SampleTarget& out) {
  random_.uniform(draws_.fetch_add(1, std::memory_order_relaxed), 1, d.mass + i);
  for (;;) {
    {
      SharedGuard guard(lock_);
      if (tree_->total() > 0) {
        draw_locked(i, 1, d);
        return rows_.gather(1, d.slot + i, i, out.column.data(), out.discount);
      }
    }
    std::this_thread::yield();  // every row is being overwritten at this moment
  }
}

// Draws again whatever an inserter reserved since it was drawn. False: there is no row any more.
inline bool Replay::redraw_torn(size_t from, size_t n, const Draw& d, const SampleTarget& out) {
  for (int round = 0;; ++round) {
    const bool last = round == replay_detail::kRedrawRounds;
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t r = reserved_.load(std::memory_order_relaxed);
    uint64_t again = 0;
    for (size_t i = from; i < from + n; ++i) {
      if (d.id[i] + config_.capacity >= r) [[likely]]
        continue;
      ++again;
      if (last) {
        copy_locked(i, d, out);
      } else {
        if (!draw(draws_.fetch_add(1, std::memory_order_relaxed), i, 1, d)) return false;
        rows_.gather(1, d.slot + i, i, out.column.data(), out.discount);
      }
    }
    if (again == 0) return true;
    redrawn_.fetch_add(again, std::memory_order_relaxed);
    if (last) return true;
  }
}

// Rows [from, from + n) of a batch: whole copies, and all of `d`. False: there is no row.
inline bool Replay::draw_part(uint64_t counter, size_t from, size_t n, const Draw& d,
                              const SampleTarget& out) {
  if (!draw(counter, from, n, d)) return false;
  rows_.gather(n, d.slot + from, from, out.column.data(), out.discount);
  return redraw_torn(from, n, d, out);
}

template <class Split>
void Replay::sample(size_t n, float beta, const SampleTarget& out, Split&& split) {
  if (n == 0) throw Error("ConfigError", "batch_size", "at least 1", "0");
  replay_detail::check_range("beta", beta, 0, 1, "a number in [0, 1]");
  replay_detail::Scratch& s = replay_detail::Scratch::of_thread(n);
  const Draw d{s.mass.data(), s.slot.data(), out.id ? out.id : s.id.data(), s.priority.data()};
  const uint64_t counter = draws_.fetch_add(n, std::memory_order_relaxed);
  std::atomic<bool> drawn{true};
  split([&](size_t from, size_t count) {
    if (!draw_part(counter + from, from, count, d, out)) drawn.store(false);
  });
  if (!drawn.load()) throw_empty();
  if (out.discount && config_.n_step == 1) {
    std::fill_n(out.discount, n, static_cast<float>(config_.gamma));
  }
  if (out.weight) {  // (N P)^-beta over its maximum, in which N and the total cancel
    float least = d.priority[0];
    for (size_t i = 0; i < n; ++i) least = std::min(least, d.priority[i]);
    const float scale = 1.f / least;
    for (size_t i = 0; i < n; ++i) {
      out.weight[i] = fast_exp2(-beta * fast_log2(d.priority[i] * scale));
    }
  }
  sampled_.fetch_add(n, std::memory_order_relaxed);
}

// Whether an inserter is writing this id; lock_ is held.
inline bool Replay::writing(uint64_t id) const {
  for (const Run& run : writing_) {
    if (id - run.first < run.n) return true;
  }
  return false;
}

inline size_t Replay::update_priorities(size_t n, const uint64_t* id, const float* td) {
  const uint64_t handed_out = reserved_.load(std::memory_order_acquire);
  uint32_t unknown = 0;
  for (size_t i = 0; i < n; ++i) unknown |= id[i] >= handed_out;
  for (size_t i = 0; unknown && i < n; ++i) {
    if (id[i] < handed_out) continue;
    throw Error("PriorityError", "ids", "ids below " + std::to_string(handed_out),
                std::to_string(id[i]) + " at position " + std::to_string(i),
                "pass the ids of a sampled batch, unchanged; nothing was changed");
  }
  check_priorities(n, td, "td_error", true);
  replay_detail::Scratch& s = replay_detail::Scratch::of_thread(n);
  float* leaf = s.priority.data();
  if (config_.clip_bad) {
    clipped_.fetch_add(count_bad(n, td, true), std::memory_order_relaxed);
    for (size_t i = 0; i < n; ++i) leaf[i] = leaf_of(clipped(std::fabs(td[i])));
  } else {
    for (size_t i = 0; i < n; ++i) leaf[i] = leaf_of(std::fabs(td[i]));
  }

  size_t alive = 0;
  {
    ExclusiveGuard guard(lock_);
    const uint64_t r = reserved_.load(std::memory_order_relaxed), capacity = config_.capacity;
    const bool check_each = !writing_.empty() || rows_.linked();
    for (size_t i = 0; i < n; ++i) {
      const uint64_t age = r - id[i];
      if (age > capacity) continue;
      const uint64_t slot = head_ >= age ? head_ - age : head_ + capacity - age;
      if (check_each && (writing(id[i]) || (rows_.linked() && !drawable(slot)))) continue;
      s.slot[alive] = slot;
      leaf[alive++] = leaf[i];
      tree_->prefetch(slot);
    }
    if (config_.alpha > 0) tree_->update(alive, s.slot.data(), leaf, s.id.data());
  }
  updated_.fetch_add(alive, std::memory_order_relaxed);
  if (alive < n) stale_.fetch_add(n - alive, std::memory_order_relaxed);
  return n - alive;
}

// ---- figures

inline uint64_t Replay::size() const {
  SharedGuard guard(lock_);
  return rows_alive_;
}
inline uint64_t Replay::reserved() const { return reserved_.load(std::memory_order_relaxed); }
inline double Replay::total_priority() const {
  SharedGuard guard(lock_);
  return tree_->total();
}

inline ReplayStats Replay::stats() const {
  uint64_t streams;
  {
    ExclusiveGuard staging(staging_lock_);
    streams = streams_.size();
  }
  SharedGuard guard(lock_);
  return {rows_alive_,   inserted_,       sampled_.load(), updated_.load(),
          stale_.load(), redrawn_.load(), clipped_.load(), pending_.load(),
          cuts_.load(),  streams,         tree_->total(),  tree_->maximum()};
}

}  // namespace copal
