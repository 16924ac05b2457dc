// SPDX-License-Identifier: MIT
// Part of replay.hpp: what a copy of the rows elsewhere, on a GPU for instance, asks for.
//
// Cost: O(rows) to copy, O(rows + capacity / K) to set priorities. Limits: rows are not linked.
// Threads: any number; while rows are copied or priorities set, inserters wait.
//
//   id    oldest ... first ....... first + n | being written ...   reserved
//                    [ whole: can be copied ]
#pragma once
#include <algorithm>
#include <thread>

#include "replay.hpp"

namespace copal {

inline void Replay::check_not_linked() const {
  if (!rows_.linked()) return;
  throw Error("ConfigError", "share_next_obs", "False where rows are copied by their ids", "True",
              "a shared observation is known only by the row behind");
}

// The oldest id and the number of ids from it on that are whole; lock_ is held.
inline Replay::Run Replay::whole_locked(uint64_t first) const {
  const uint64_t r = reserved_.load(std::memory_order_relaxed), capacity = config_.capacity;
  first = std::max(first, r > capacity ? r - capacity : 0);
  uint64_t end = std::max(r, first);
  for (const Run& run : writing_) end = std::min(end, std::max(run.first, first));
  return {first, end - first};
}

inline std::pair<uint64_t, size_t> Replay::whole(uint64_t first) const {
  check_not_linked();
  for (;;) {
    {
      SharedGuard guard(lock_);
      const Run run = whole_locked(first);
      if (run.n > 0 || writing_.empty()) return {run.first, run.n};
    }
    std::this_thread::yield();  // the next row is being copied by its inserter
  }
}

inline bool Replay::copy_rows(uint64_t first, size_t n, const SampleTarget& out) const {
  check_not_linked();
  std::vector<uint64_t> slot(n);
  {
    SharedGuard guard(lock_);
    const Run run = whole_locked(first);
    if (run.first != first || run.n < n) return false;
    for (size_t i = 0; i < n; ++i) slot[i] = slot_of(first + i);
    rows_.gather(n, slot.data(), 0, out.column.data(), out.discount);
  }
  if (out.discount && config_.n_step == 1) {
    std::fill_n(out.discount, n, static_cast<float>(config_.gamma));
  }
  for (size_t i = 0; out.id && i < n; ++i) out.id[i] = first + i;
  if (out.weight) std::fill_n(out.weight, n, 1.f);
  return true;
}

inline void Replay::set_leaves(uint64_t first, size_t n, const float* leaf) {
  check_not_linked();
  check_priorities(n, leaf, "leaf", false);
  ExclusiveGuard guard(lock_);
  const Run run = whole_locked(first);
  if (config_.alpha == 0 || run.first >= first + n) return;
  const size_t skipped = run.first - first, count = std::min<uint64_t>(n - skipped, run.n);
  for (size_t i = 0; i < count; ++i) {
    const float value = std::min(leaf[skipped + i], replay_detail::kLargestLeaf);
    tree_->leaves()[slot_of(run.first + i)] = value;
  }
  tree_->rebuild();
}

}  // namespace copal
