// SPDX-License-Identifier: MIT
// Part of replay.hpp: construction and insertion.
//
// Cost: O(rows * log_K capacity). Limits: 1 to capacity rows a call. Threads: see replay.hpp.
//
//   small: lock { reserve, copy, publish }                       one lock round is cheaper than two
//   large: lock { reserve, zero leaves } copy lock { publish }   lazy writing
#pragma once
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "power.hpp"
#include "replay.hpp"
#include "replay_config.hpp"

namespace copal {

namespace replay_detail {

inline constexpr size_t kSmallBytes = 1024;  // rows copied under the lock
inline constexpr float kLargestLeaf = 0x1p96f;

}  // namespace replay_detail

inline Replay::Replay(Schema schema, const ReplayConfig& config)
    : schema_(replay_detail::checked(std::move(schema), replay_detail::checked(config))),
      config_(config),
      roles_(schema_),
      rows_(schema_,
            RowLayout(schema_, config.share_next_obs ? roles_.next_obs : Schema::npos,
                      config.n_step > 1, config.share_next_obs),
            config.capacity, roles_.obs, roles_.next_obs),
      random_(config.seed),
      tree_(make_tree(config.fanout, config.capacity)),
      n_step_(schema_, rows_.layout(), config.n_step, config.gamma, config.share_next_obs) {
  if (rows_.linked()) drawable_ = Pages<uint64_t>((config.capacity + 63) / 64);
}

inline uint64_t Replay::nbytes() const {
  return rows_.nbytes() + tree_->nbytes() + drawable_.nbytes();
}

inline std::pair<const std::byte*, size_t> Replay::column_memory(size_t column) const {
  const size_t offset = rows_.layout().offset[column];
  return {offset == Schema::npos ? nullptr : rows_.row(0) + offset, rows_.layout().stride};
}

// ---- priorities

inline float Replay::leaf_of(float raw) const {
  const float alpha = static_cast<float>(config_.alpha);
  const float p = fast_pow(raw + static_cast<float>(config_.eps), alpha, alpha == 0.f ? 1.f : 0.f);
  return std::min(p, replay_detail::kLargestLeaf);
}

inline uint64_t Replay::count_bad(size_t n, const float* value, bool allow_negative) const {
  const float low = allow_negative ? -std::numeric_limits<float>::max() : 0.f;
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    bad += !(value[i] >= low && value[i] <= std::numeric_limits<float>::max());
  }
  return bad;
}

inline void Replay::check_priorities(size_t n, const float* value, const char* field,
                                     bool allow_negative) const {
  if (config_.clip_bad || count_bad(n, value, allow_negative) == 0) [[likely]]
    return;
  for (size_t i = 0; i < n; ++i) {
    if (count_bad(1, value + i, allow_negative) == 0) continue;
    throw Error("PriorityError", field,
                allow_negative ? "finite values" : "finite values of at least 0",
                replay_detail::number(value[i]) + " at position " + std::to_string(i),
                "nothing was changed; on_bad=\"clip\" clips such values and counts them");
  }
}

// What `on_bad="clip"` makes of a value.
inline float clipped(float v) {
  if (!(v == v)) return 0.f;
  return std::min(std::max(v, 0.f), std::numeric_limits<float>::max());
}

// ---- places

template <class F>
inline void Replay::by_run(uint64_t slot, size_t n, F&& f) const {
  const size_t run = std::min<uint64_t>(n, config_.capacity - slot);
  f(slot, size_t{0}, run);
  if (run < n) f(uint64_t{0}, run, n - run);
}

// Slot of a living id.
inline uint64_t Replay::slot_of(uint64_t id) const {
  const uint64_t age = reserved_.load(std::memory_order_relaxed) - id;
  return head_ >= age ? head_ - age : head_ + config_.capacity - age;
}

inline void Replay::set_drawable(uint64_t slot, bool on) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  drawable_[slot / 64] = on ? drawable_[slot / 64] | bit : drawable_[slot / 64] & ~bit;
}

// ---- reserving

// The lock, once no slower inserter still writes a slot that n more rows would reuse.
inline ExclusiveGuard Replay::lock_for(size_t n) {
  for (;;) {
    ExclusiveGuard guard(lock_);
    const uint64_t end = reserved_.load(std::memory_order_relaxed) + n;
    bool lapped = false;
    for (const Run& run : writing_) lapped |= end > run.first + config_.capacity;
    if (!lapped) return guard;
    guard.unlock();
    std::this_thread::yield();
  }
}

// Accounts for the rows whose slots are about to be reused.
inline void Replay::drop_overwritten(uint64_t slot, size_t n) {
  if (!rows_.linked()) {
    const uint64_t r = reserved_.load(std::memory_order_relaxed);
    const uint64_t kept = r < config_.capacity ? config_.capacity - r : 0;
    rows_alive_ -= n > kept ? n - kept : 0;
    return;
  }
  by_run(slot, n, [&](uint64_t s, size_t, size_t run) {
    for (size_t i = 0; i < run; ++i) {
      rows_alive_ -= drawable(s + i);
      set_drawable(s + i, false);
    }
  });
}

// Takes n ids and, unless they are published before the lock is given back, makes their slots
// unsampleable; lock_ is held.
inline Replay::Run Replay::reserve(size_t n, bool zero) {
  const uint64_t first = reserved_.load(std::memory_order_relaxed), slot = head_;
  drop_overwritten(slot, n);
  if (zero && first + n > config_.capacity) {  // in the first lap leaves are zero
    by_run(slot, n, [&](uint64_t s, size_t, size_t run) { tree_->fill(s, run, 0.f); });
  }
  reserved_.store(first + n, std::memory_order_relaxed);
  head_ = slot + n >= config_.capacity ? slot + n - config_.capacity : slot + n;
  // Whoever reads a byte that is written from here on also sees the new `reserved_`.
  std::atomic_thread_fence(std::memory_order_release);
  return {first, n};
}

inline void Replay::finish(const Run& run) {
  for (Run& r : writing_) {
    if (r.first != run.first) continue;
    r = writing_.back();
    writing_.pop_back();
    return;
  }
}

// Whether the maximum of the rows that stay may be below the tree's.
inline bool Replay::overwrites_maximum(uint64_t slot, size_t n) const {
  bool found = false;
  by_run(slot, n, [&](uint64_t s, size_t, size_t run) {
    for (size_t i = 0; i < run; ++i) found |= tree_->leaves()[s + i] == tree_->maximum();
  });
  return found;
}

// ---- rows that are complete as they come

inline void Replay::publish_run(uint64_t slot, size_t n, const float* raw) {
  if (raw && config_.alpha > 0) {
    slots_.resize(n), scratch_.resize(n), leaves_.resize(n);
    by_run(slot, n, [&](uint64_t s, size_t at, size_t run) {
      for (size_t i = 0; i < run; ++i) slots_[at + i] = s + i;
    });
    for (size_t i = 0; i < n; ++i) leaves_[i] = leaf_of(clipped(raw[i]));
    tree_->update(n, slots_.data(), leaves_.data(), scratch_.data());
  } else {
    const float present = tree_->maximum();
    const float leaf = present > 0.f ? present : 1.f;
    by_run(slot, n, [&](uint64_t s, size_t, size_t run) { tree_->fill(s, run, leaf); });
  }
  rows_alive_ += n;
  inserted_ += n;
}

inline uint64_t Replay::add_direct(size_t n, const RowSource& rows) {
  const auto copy = [&](uint64_t slot) {
    by_run(slot, n, [&](uint64_t s, size_t at, size_t run) {
      rows_.write_columns(s, run, rows.column, at);
    });
  };
  ExclusiveGuard guard = lock_for(n);
  const uint64_t slot = head_;
  const bool small = n * rows_.layout().stride <= replay_detail::kSmallBytes;
  const Run run = reserve(n, !small || overwrites_maximum(slot, n));
  if (!small) {
    writing_.push_back(run);
    guard.unlock();
    copy(slot);
    guard.lock();
    finish(run);
  } else {
    copy(slot);
  }
  publish_run(slot, n, rows.priority);
  return run.first;
}

// ---- rows that are staged

// Writes the link of a row and makes it drawable; lock_ is held.
inline void Replay::link(const Unlinked& row, uint64_t to) {
  pending_.fetch_sub(1, std::memory_order_relaxed);
  const uint64_t r = reserved_.load(std::memory_order_relaxed);
  if (row.id + config_.capacity < r) return;  // overwritten before it was complete
  const uint64_t slot = slot_of(row.id);
  rows_.set_link(slot, static_cast<uint32_t>(to - row.id));
  set_drawable(slot, true);
  ++rows_alive_;
  slots_.push_back(slot);
  leaves_.push_back(row.priority);
}

inline void Replay::publish_linked(const RowBlock::Meta& meta, uint64_t id) {
  std::deque<Unlinked>& waiting = meta.stream->unlinked;
  if (!meta.ghost) {
    ++inserted_;
    waiting.push_back({id, meta.priority});
    if (waiting.size() <= config_.n_step) return;
  }
  const size_t links = meta.ghost ? waiting.size() : 1;
  for (size_t i = 0; i < links; ++i) {
    link(waiting.front(), id);
    waiting.pop_front();
  }
}

inline void Replay::publish_piece(const Run& run, const RowBlock::Meta* meta) {
  slots_.clear(), leaves_.clear();
  for (size_t i = 0; i < run.n; ++i) {
    if (rows_.linked()) {
      publish_linked(meta[i], run.first + i);
    } else {
      slots_.push_back(slot_of(run.first + i));
      leaves_.push_back(meta[i].priority);
    }
  }
  if (!rows_.linked()) {
    rows_alive_ += run.n, inserted_ += run.n;
    pending_.fetch_sub(run.n, std::memory_order_relaxed);
  }
  const float present = tree_->maximum();
  const float fresh = present > 0.f ? present : 1.f;
  for (float& p : leaves_) p = p == kMaximumPresent || config_.alpha == 0 ? fresh : leaf_of(p);
  scratch_.resize(slots_.size());
  tree_->update(slots_.size(), slots_.data(), leaves_.data(), scratch_.data());
}

// Writes rows [from, from + n) of the block; staging_lock_ is held.
inline void Replay::write_piece(const RowBlock& block, size_t from, size_t n,
                                std::vector<uint64_t>& ids) {
  const size_t stride = rows_.layout().stride;
  ExclusiveGuard guard = lock_for(n);
  const uint64_t slot = head_;
  const Run run = reserve(n, true);
  writing_.push_back(run);
  guard.unlock();
  by_run(slot, n, [&](uint64_t s, size_t at, size_t rows) {
    rows_.write_rows(s, rows, block.rows.data() + (from + at) * stride);
  });
  guard.lock();
  finish(run);
  publish_piece(run, block.meta.data() + from);
  guard.unlock();
  for (size_t i = 0; i < n; ++i) {
    if (!block.meta[from + i].ghost) ids.push_back(run.first + i);
  }
}

inline void Replay::write_block(RowBlock& block, std::vector<uint64_t>& ids) {
  const size_t rows = block.meta.size();
  for (size_t from = 0; from < rows; from += std::min<uint64_t>(config_.capacity, rows - from)) {
    write_piece(block, from, std::min<uint64_t>(config_.capacity, rows - from), ids);
  }
  block.rows.clear();
  block.meta.clear();
}

inline void Replay::add_staged(size_t n, const RowSource& rows, std::vector<uint64_t>& ids) {
  constexpr size_t kBlockRows = 1024;
  ExclusiveGuard staging(staging_lock_);
  for (size_t i = 0; i < n; ++i) {
    Stream& stream = streams_[rows.stream ? rows.stream[i] : rows.one_stream];
    const float priority = rows.priority ? clipped(rows.priority[i]) : kMaximumPresent;
    pending_.fetch_add(1, std::memory_order_relaxed);
    const bool cut = n_step_.push(stream, rows.column, i, priority, block_);
    if (cut) cuts_.fetch_add(1, std::memory_order_relaxed);
    if (block_.meta.size() >= kBlockRows) write_block(block_, ids);
  }
  write_block(block_, ids);
}

// ---- the public calls

inline void Replay::check_rows(size_t n, const RowSource& rows) {
  if (n < 1 || n > config_.capacity) {
    throw Error("SchemaError", "add",
                "1 to capacity = " + std::to_string(config_.capacity) + " rows", std::to_string(n),
                "add the rows in several calls");
  }
  for (size_t i = 0; i < (rows.stream ? n : 1); ++i) {
    const int64_t stream = rows.stream ? rows.stream[i] : rows.one_stream;
    if (stream < 0) {
      throw Error("SchemaError", "stream", "numbers of at least 0", std::to_string(stream));
    }
  }
  if (!rows.priority) return;
  check_priorities(n, rows.priority, "priority", false);
  if (config_.clip_bad) clipped_.fetch_add(count_bad(n, rows.priority, false));
}

inline void Replay::add(size_t n, const RowSource& rows, std::vector<uint64_t>& ids) {
  check_rows(n, rows);
  if (rows_.linked() || config_.n_step > 1) return add_staged(n, rows, ids);
  const uint64_t first = add_direct(n, rows);
  for (size_t i = 0; i < n; ++i) ids.push_back(first + i);
}

inline void Replay::end_episode(int64_t stream, std::vector<uint64_t>& ids) {
  ExclusiveGuard staging(staging_lock_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  n_step_.flush(found->second, block_);
  write_block(block_, ids);
}

}  // namespace copal
