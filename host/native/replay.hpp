// SPDX-License-Identifier: MIT
// Prioritized replay: packed rows in a ring, a K-ary sum and maximum tree over their priorities.
//
// Cost: add O(rows * log_K capacity), sample and update O(batch * log_K capacity), all else O(1).
// Limits: 1 to 2^32 - 1 rows, ids are 64-bit insertion counters, priorities are kept in [0, 2^96].
// Threads: any number may call anything at once, save for `load`.
//
//   id    ... r-3  r-2  r-1 | r = reserved, the next id      alive iff r - capacity <= id < r
//   slot  = id mod capacity: rows_[slot] holds the row, leaf `slot` of tree_ its priority
//
//   add    : lock { reserve ids, zero their leaves }  copy rows         lock { publish priorities }
//   sample : lock shared { draw slots, form ids }     copy rows, then read `reserved` once more: what
//            an inserter reserved meanwhile may be torn and is drawn again
//
// A sampler therefore needs no word a slot to know that its copy is whole, and a late priority for a
// row that is gone is recognised by its id alone.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schema.hpp"

namespace copal {

struct ReplayConfig {
  uint64_t capacity = 0;         // rows
  double alpha = 0.6;            // exponent of priorities; 0 draws uniformly
  double eps = 1e-6;             // added to |TD| before the exponent
  unsigned fanout = 16;          // children a node
  unsigned n_step = 1;           // rewards summed into one row
  double gamma = 0.99;           // discount a step
  bool share_next_obs = false;   // take next_obs from a later row
  bool clip_bad = false;         // clip NaN, infinite and negative priorities instead of throwing
  uint64_t seed = 0;
};

// Where `add` reads n rows: one pointer a column in schema order, rows behind one another.
struct RowSource {
  const std::byte* const* column = nullptr;
  const float* priority = nullptr;   // raw, n values; nullptr: the maximum present
  const int64_t* stream = nullptr;   // n values; nullptr: `one_stream` for all
  int64_t one_stream = 0;
};

// Where `sample` writes: one pointer a column in schema order; nullptr skips.
struct SampleTarget {
  std::vector<std::byte*> column;
  float* discount = nullptr;
  uint64_t* id = nullptr;
  float* weight = nullptr;
};

struct ReplayStats {
  uint64_t rows, inserted, sampled, updated, stale_updates, redrawn, clipped, pending, streams;
  double total_priority, max_priority;
};

class Replay {
 public:
  // Throws ConfigError or SchemaError, std::bad_alloc.
  Replay(Schema schema, const ReplayConfig& config);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Takes n rows and sets `ids` to those of the rows that were written now. Throws before it changes
  // anything: SchemaError (n), PriorityError.
  void add(size_t n, const RowSource& rows, std::vector<uint64_t>& ids);

  // Ends the stream's episode after its last row, which bootstraps; `ids` as in `add`.
  void end_episode(int64_t stream, std::vector<uint64_t>& ids);

  // Draws n rows with replacement, by priority. Throws EmptyReplayError, ConfigError (beta, n).
  void sample(size_t n, float beta, const SampleTarget& out);

  // Sets priorities to (|td| + eps)^alpha; of equal ids the last one wins. Returns the number of
  // stale ids, which are dropped. Throws PriorityError before it changes anything.
  size_t update_priorities(size_t n, const uint64_t* id, const float* td);

  const Schema& schema() const { return schema_; }
  const ReplayConfig& config() const { return config_; }
  uint64_t capacity() const { return config_.capacity; }
  uint64_t size() const;      // rows that can be drawn
  uint64_t reserved() const;  // the next id
  uint64_t nbytes() const;    // known at construction
  double total_priority() const;
  ReplayStats stats() const;

 private:
  Schema schema_;
  ReplayConfig config_;
};

}  // namespace copal
