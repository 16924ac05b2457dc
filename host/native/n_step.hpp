// SPDX-License-Identifier: MIT
// Staging of rows that are not complete yet: n-step returns, and observations shared between rows.
//
// Cost: O(n) a transition, O(1) rows copied. Limits: n >= 1; any number of streams, each as large
// as its window. Not synchronised: the owner holds a lock around every call.
//
//   stream  --push-->  | t | t+1 | ... | t+n-1 |  --complete or episode end-->  RowBlock
//
// A row leaves with the sum of gamma^i times the rewards, gamma^k, and the next observation and
// flags of the last transition that it covers. At an episode's end all rows leave, shortened.
//
// With shared observations a row leaves without its next observation. It is linked to the row of
// the same stream n steps later once that one is written, or to a ghost, a row that carries only
// the episode's last observation and is never drawn.
//
// A transition that does not begin where the stream's last one ended belongs to another sequence:
// the stream is cut before it, as by an episode's end that bootstraps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "schema.hpp"

namespace copal {

// Columns that staging knows by name; npos where the schema lacks one.
struct Roles {
  explicit Roles(const Schema& s)
      : obs(s.find("obs")),
        next_obs(s.find("next_obs")),
        reward(s.find("reward")),
        terminated(s.find("terminated")),
        truncated(s.find("truncated")) {}

  // Whether `obs` can be compared with the `next_obs` before it.
  bool chained(const Schema& s) const {
    if (obs == Schema::npos || next_obs == Schema::npos) return false;
    return s[obs].dtype == s[next_obs].dtype && s[obs].shape == s[next_obs].shape;
  }

  size_t obs, next_obs, reward, terminated, truncated;
};

inline constexpr float kMaximumPresent =
    -1.f;  // stands for a priority that is chosen when published

struct Unlinked {
  uint64_t id;
  float priority;  // raw, or kMaximumPresent
};

// One sequence of transitions, an environment for instance.
struct Stream {
  struct Pending {
    std::vector<std::byte> row;  // packed
    std::vector<std::byte> next_obs;
    double reward = 0, discount = 1;
    float priority = kMaximumPresent;
  };
  std::vector<Pending> window;    // ring of n
  size_t first = 0, count = 0;    // oldest pending row, number of pending rows
  bool open = false;              // an episode has begun and not ended
  std::deque<Unlinked> unlinked;  // written, waiting for a row to link to, oldest first
};

// Rows ready to be written, packed.
struct RowBlock {
  struct Meta {
    Stream* stream;
    float priority;
    bool ghost;
  };
  std::vector<std::byte> rows;
  std::vector<Meta> meta;
};

class NStep {
 public:
  NStep(const Schema& schema, const RowLayout& layout, unsigned n, double gamma, bool share)
      : schema_(schema),
        layout_(layout),
        roles_(schema),
        n_(n),
        gamma_(gamma),
        share_(share),
        chained_(roles_.chained(schema)) {}

  // Takes row `index` of the columns. Appends what is complete to `out`. Returns whether the stream
  // was cut before the row.
  bool push(Stream& s, const std::byte* const* column, size_t index, float priority,
            RowBlock& out) {
    if (s.window.empty()) s.window.resize(n_);
    const bool cut = chained_ && s.open && !continues(s, column, index);
    if (cut) flush(s, out);
    Stream::Pending& p = s.window[(s.first + s.count) % n_];
    load(p, column, index, priority);
    ++s.count;
    s.open = true;
    accumulate(s, p);
    const bool end = flag(p, roles_.terminated) || flag(p, roles_.truncated);
    if (end) {
      flush(s, out);
    } else if (s.count == n_) {
      emit_oldest(s, out);
    }
    return cut;
  }

  // Ends the episode: every pending row leaves.
  void flush(Stream& s, RowBlock& out) {
    while (s.count) emit_oldest(s, out);
    if (share_ && s.open) emit_ghost(s, out);
    s.open = false;
  }

 private:
  const Stream::Pending& newest(const Stream& s) const {
    // With a window of one row that row has left already, but its slot still holds it.
    return s.window[(s.first + s.count + n_ - 1) % n_];
  }

  bool continues(const Stream& s, const std::byte* const* column, size_t index) const {
    const size_t bytes = schema_[roles_.obs].bytes;
    return std::memcmp(column[roles_.obs] + index * bytes, newest(s).next_obs.data(), bytes) == 0;
  }

  void load(Stream::Pending& p, const std::byte* const* column, size_t index, float priority) {
    p.row.resize(layout_.stride);
    for (size_t c = 0; c < schema_.size(); ++c) {
      const size_t bytes = schema_[c].bytes;
      const std::byte* from = column[c] + index * bytes;
      if (layout_.offset[c] != Schema::npos) std::memcpy(&p.row[layout_.offset[c]], from, bytes);
      if (c == roles_.next_obs) p.next_obs.assign(from, from + bytes);
    }
    p.reward = 0;
    p.discount = 1;
    p.priority = priority;
  }

  // Adds the newest reward to every pending row, and one step to its discount.
  void accumulate(Stream& s, const Stream::Pending& last) {
    const double r = roles_.reward == Schema::npos ? 0 : reward(last);
    for (size_t i = 0; i < s.count; ++i) {
      Stream::Pending& p = s.window[(s.first + i) % n_];
      p.reward += p.discount * r;
      p.discount *= gamma_;
    }
  }

  void emit_oldest(Stream& s, RowBlock& out) {
    const Stream::Pending& last = newest(s);
    Stream::Pending& p = s.window[s.first];
    const size_t at = append(out, p.row.data(), {&s, p.priority, false});
    std::byte* row = out.rows.data() + at;
    if (n_ > 1) {
      set_reward(row, p.reward);
      for (size_t c : {roles_.terminated, roles_.truncated}) copy_column(row, last, c);
      if (!share_)
        std::memcpy(row + layout_.offset[roles_.next_obs], last.next_obs.data(),
                    last.next_obs.size());
    }
    if (layout_.discount != Schema::npos) {
      const float d = static_cast<float>(p.discount);
      std::memcpy(row + layout_.discount, &d, 4);
    }
    s.first = (s.first + 1) % n_;
    --s.count;
  }

  void emit_ghost(Stream& s, RowBlock& out) {
    const std::vector<std::byte> zeros(layout_.stride);
    const size_t at = append(out, zeros.data(), {&s, 0.f, true});
    const std::vector<std::byte>& last = newest(s).next_obs;
    std::memcpy(out.rows.data() + at + layout_.offset[roles_.obs], last.data(), last.size());
  }

  size_t append(RowBlock& out, const std::byte* row, RowBlock::Meta meta) const {
    const size_t at = out.rows.size();
    out.rows.insert(out.rows.end(), row, row + layout_.stride);
    out.meta.push_back(meta);
    return at;
  }

  void copy_column(std::byte* row, const Stream::Pending& from, size_t c) const {
    std::memcpy(row + layout_.offset[c], &from.row[layout_.offset[c]], schema_[c].bytes);
  }
  bool flag(const Stream::Pending& p, size_t c) const {
    return p.row[layout_.offset[c]] != std::byte{0};
  }
  double reward(const Stream::Pending& p) const {
    const std::byte* at = &p.row[layout_.offset[roles_.reward]];
    if (schema_[roles_.reward].dtype == Dtype::f64) return read<double>(at);
    return schema_[roles_.reward].dtype == Dtype::f32 ? read<float>(at) : 0.;
  }
  void set_reward(std::byte* row, double value) const {
    std::byte* at = row + layout_.offset[roles_.reward];
    const float single = static_cast<float>(value);
    if (schema_[roles_.reward].dtype == Dtype::f64) {
      std::memcpy(at, &value, 8);
    } else {
      std::memcpy(at, &single, 4);
    }
  }
  template <class T>
  static T read(const std::byte* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }

  const Schema& schema_;
  const RowLayout& layout_;
  Roles roles_;
  unsigned n_;
  double gamma_;
  bool share_;
  bool chained_;  // a transition's observation tells whether it continues its stream
};

}  // namespace copal
