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
//   add    : lock { reserve ids, zero their leaves }   copy rows    lock { publish priorities }
//   sample : lock shared { draw slots, form ids }      copy rows    read `reserved` once more:
//            a row whose slot was reserved meanwhile may be torn and is drawn again
//
// A sampler therefore needs no word a slot to know that its copy is whole, and a late priority for
// a row that is gone is recognised by its id alone.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "file.hpp"
#include "lock.hpp"
#include "n_step.hpp"
#include "pages.hpp"
#include "random.hpp"
#include "replay_config.hpp"
#include "row_store.hpp"
#include "schema.hpp"
#include "sum_tree.hpp"

namespace copal {

// Where `add` reads n rows: one pointer a column in schema order, rows behind one another.
struct RowSource {
  const std::byte* const* column = nullptr;
  const float* priority = nullptr;  // raw, n values; nullptr: the maximum present
  const int64_t* stream = nullptr;  // n values; nullptr: `one_stream` for all
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
  uint64_t rows, inserted, sampled, updated, stale_updates, redrawn, clipped, pending, cuts,
      streams;
  double total_priority, max_priority;
};

class Replay {
 public:
  // Throws ConfigError or SchemaError, std::bad_alloc.
  Replay(Schema schema, const ReplayConfig& config);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Takes n rows and appends to `ids` those of the rows that were written now. Throws before it
  // changes anything: SchemaError (n), PriorityError.
  void add(size_t n, const RowSource& rows, std::vector<uint64_t>& ids);

  // Ends the stream's episode after its last row, which bootstraps; `ids` as in `add`.
  void end_episode(int64_t stream, std::vector<uint64_t>& ids);

  // Draws n rows with replacement, by priority. Throws EmptyReplayError, ConfigError (beta, n).
  void sample(size_t n, float beta, const SampleTarget& out) {
    sample(n, beta, out, [n](auto&& part) { part(0, n); });
  }

  // Draws the same rows in parts: `split(part)` calls part(first, count), which throws nothing, for
  // ranges that make up [0, n), on any threads, and returns when all are done.
  template <class Split>
  void sample(size_t n, float beta, const SampleTarget& out, Split&& split);

  // Sets priorities to (|td| + eps)^alpha; of equal ids the last one wins. Returns the number of
  // stale ids, which are dropped. Throws PriorityError before it changes anything.
  size_t update_priorities(size_t n, const uint64_t* id, const float* td);

  // The first living id from `first` on, and how many rows from there on are whole; waits for an
  // inserter that is just writing the first one.
  std::pair<uint64_t, size_t> whole(uint64_t first) const;
  // Copies rows [first, first + n). False: not all are whole any more, and nothing was copied.
  bool copy_rows(uint64_t first, size_t n, const SampleTarget& out) const;
  // Sets priorities, as they are drawn by, of ids [first, first + n) that are whole; uniform draws
  // keep theirs. Throws PriorityError before it changes anything.
  void set_leaves(uint64_t first, size_t n, const float* leaf);

  const Schema& schema() const { return schema_; }
  const ReplayConfig& config() const { return config_; }
  uint64_t capacity() const { return config_.capacity; }
  uint64_t size() const;      // rows that can be drawn
  uint64_t reserved() const;  // the next id
  uint64_t nbytes() const;    // known at construction
  double total_priority() const;
  ReplayStats stats() const;

  // A column of every slot, in place: first item, and bytes from one row to the next. Null if the
  // column is not stored.
  std::pair<const std::byte*, size_t> column_memory(size_t column) const;
  const float* leaves() const { return tree_->leaves(); }

  // Writes `meta` and the whole state, into `path` at once or not at all. Inserters and updaters
  // wait, samplers do not. Throws CheckpointError.
  void save(const std::string& path, const std::string& meta);
  // The text given to `save`. Throws CheckpointError.
  static std::string read_meta(const std::string& path);
  // Takes over the state of a buffer with the same schema and configuration; nobody else may use
  // this one meanwhile, and after CheckpointError it is of no use.
  void load(const std::string& path);

 private:
  // A run of ids whose slots are being written: their leaves are zero, nobody draws them.
  struct Run {
    uint64_t first;
    size_t n;
  };
  struct Draw;  // what a draw leaves behind, see replay_sample.hpp

  // ---- replay_add.hpp
  void check_rows(size_t n, const RowSource& rows);
  void check_priorities(size_t n, const float* value, const char* field, bool allow_negative) const;
  uint64_t count_bad(size_t n, const float* value, bool allow_negative) const;
  float leaf_of(float raw) const;
  uint64_t slot_of(uint64_t id) const;
  uint64_t add_direct(size_t n, const RowSource& rows);
  void add_staged(size_t n, const RowSource& rows, std::vector<uint64_t>& ids);
  void write_block(RowBlock& block, std::vector<uint64_t>& ids);
  void write_piece(const RowBlock& block, size_t from, size_t n, std::vector<uint64_t>& ids);
  ExclusiveGuard lock_for(size_t n);
  Run reserve(size_t n, bool zero);
  bool overwrites_maximum(uint64_t slot, size_t n) const;
  void finish(const Run& run);
  void drop_overwritten(uint64_t slot, size_t n);
  void publish_run(uint64_t slot, size_t n, const float* raw);
  void publish_piece(const Run& run, const RowBlock::Meta* meta);
  void publish_linked(const RowBlock::Meta& meta, uint64_t id);
  void link(const Unlinked& row, uint64_t to);
  void set_drawable(uint64_t slot, bool on);
  bool drawable(uint64_t slot) const { return drawable_[slot / 64] >> (slot % 64) & 1; }
  template <class F>
  void by_run(uint64_t slot, size_t n, F&& f) const;  // f(slot, offset, rows), split where it wraps

  // ---- replay_sample.hpp
  bool draw_part(uint64_t counter, size_t from, size_t n, const Draw& d, const SampleTarget& out);
  bool draw(uint64_t counter, size_t from, size_t n, const Draw& d);
  void draw_locked(size_t from, size_t n, const Draw& d) const;
  void copy_locked(size_t i, const Draw& d, const SampleTarget& out);
  bool redraw_torn(size_t from, size_t n, const Draw& d, const SampleTarget& out);
  [[noreturn]] void throw_empty() const;
  bool writing(uint64_t id) const;

  // ---- replay_rows.hpp
  void check_not_linked() const;
  Run whole_locked(uint64_t first) const;

  // ---- replay_file.hpp
  void write_state(FileWriter& file);
  void read_state(FileReader& file);

  const Schema schema_;
  const ReplayConfig config_;
  const Roles roles_;
  RowStore rows_;
  const CounterRandom random_;
  std::unique_ptr<PriorityTree> tree_;

  alignas(64) mutable SpinSharedMutex lock_;
  alignas(64) std::atomic<uint64_t> reserved_{0};  // written under lock_
  std::atomic<uint64_t> draws_{0};                 // random numbers used
  std::atomic<uint64_t> sampled_{0}, updated_{0}, stale_{0}, redrawn_{0}, clipped_{0};

  // Guarded by lock_.
  alignas(64) uint64_t head_ = 0;  // slot of the next id
  uint64_t rows_alive_ = 0;        // rows that can be drawn
  uint64_t inserted_ = 0;          // rows taken by `add` and written
  std::vector<Run> writing_;
  Pages<uint64_t> drawable_;  // a bit a slot, only where rows are linked
  std::vector<uint64_t> slots_, scratch_;
  std::vector<float> leaves_;

  // Guarded by staging_lock_, which is taken before lock_.
  mutable SpinSharedMutex staging_lock_;
  NStep n_step_;
  std::unordered_map<int64_t, Stream> streams_;
  RowBlock block_;
  std::atomic<uint64_t> pending_{0};  // rows taken and not yet drawable
  std::atomic<uint64_t> cuts_{0};     // streams cut where a row did not continue the last one
};

}  // namespace copal

#include "replay_add.hpp"
#include "replay_file.hpp"
#include "replay_rows.hpp"
#include "replay_sample.hpp"
