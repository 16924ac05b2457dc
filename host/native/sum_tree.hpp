// SPDX-License-Identifier: MIT
// K-ary sum and maximum tree over float32 priorities, with a float64 mass.
//
// Cost: O(log_K capacity) a draw or an update, in blocks so that many loads are in flight. Limits:
// leaves in [0, 2^96], so that the sum of 2^32 of them is finite. Parents are recomputed from their
// children, never patched, so the root stays the sum of the leaves to 1e-7 relative for ever. Const
// members may run at once; the others exclude everything else.
//
//   level top   |s s s ... s|                        one group of K
//   level 1     |s ... s| |s ... s| ...              sums, and in a second array maxima, of groups
//   level 0     |p ... p| |p ... p| |p ... p| ...    leaves, shared by sums and maxima
//
// Each level's width is rounded up to K, so that a group starts at a multiple of its own size and
// never straddles more 64-byte lines than it must.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "errors.hpp"
#include "pages.hpp"
#include "tree_group.hpp"

namespace copal {

// What a replay buffer needs of a tree of any fanout; a virtual call serves a whole batch.
class PriorityTree {
 public:
  virtual ~PriorityTree() = default;

  // n descents with mass[i] in [0, total]: slot[i] gets the leaf, priority[i] its value. Never
  // lands on a zero leaf unless all are zero. Destroys `mass`.
  virtual void descend(size_t n, double* mass, uint64_t* slot, float* priority) const = 0;

  // Sets leaves; of equal slots the last one wins. `scratch` has n entries.
  virtual void update(size_t n, const uint64_t* slot, const float* priority, uint64_t* scratch) = 0;

  // Sets n >= 1 neighbouring leaves.
  virtual void fill(uint64_t first, uint64_t n, float priority) = 0;

  // Recomputes every parent after leaves were written through `leaves`.
  virtual void rebuild() = 0;

  virtual uint64_t nbytes() const = 0;

  double total() const { return total_; }
  float maximum() const { return maximum_; }
  const float* leaves() const { return leaf_.data(); }
  float* leaves() { return leaf_.data(); }
  void prefetch(uint64_t slot) const { __builtin_prefetch(leaf_.data() + slot, 1); }

 protected:
  Pages<float> leaf_;
  double total_ = 0;
  float maximum_ = 0;
};

template <int K>
class SumTree final : public PriorityTree {
 public:
  explicit SumTree(uint64_t capacity) {
    groups_[0] = (capacity + K - 1) / K;
    leaf_ = Pages<float>(groups_[0] * K);
    while (groups_[top_] > 1) {
      ++top_;
      groups_[top_] = (groups_[top_ - 1] + K - 1) / K;
      sum_[top_] = Pages<float>(groups_[top_] * K);
      max_[top_] = Pages<float>(groups_[top_] * K);
    }
    bitmap_ = Pages<uint64_t>(kBitmapGroups / 64);
  }

  void descend(size_t n, double* mass, uint64_t* slot, float* priority) const override {
    for (size_t from = 0; from < n; from += kBlock) {
      descend_block(std::min(kBlock, n - from), mass + from, slot + from, priority + from);
    }
  }

  void update(size_t n, const uint64_t* slot, const float* priority, uint64_t* scratch) override {
    if (n == 0) return;
    for (size_t i = 0; i < n; ++i) {
      leaf_[slot[i]] = priority[i];
      scratch[i] = slot[i] / K;
      if (top_ >= 1) prefetch_parent(1, scratch[i]);
    }
    if (changed_.size() < n) changed_.resize(n);
    size_t m = unique(n, scratch, groups_[0]), changed = 0;
    for (int level = 1; level <= top_; ++level) {
      if (level > 1) changed = repair_maxima(level, changed);
      for (size_t i = 0; i < m; ++i) {
        const uint64_t group = scratch[i];
        sum_[level][group] = sum_group<K>(sums(level - 1) + group * K);
        if (level == 1) changed += set_maximum(1, group, changed);
        scratch[i] = group / K;
        if (level < top_) prefetch_parent(level + 1, scratch[i]);
      }
      m = unique(m, scratch, groups_[level]);
    }
    set_root();
  }

  void fill(uint64_t first, uint64_t n, float priority) override {
    std::fill_n(leaf_.data() + first, n, priority);
    recompute_range(first / K, (first + n - 1) / K);
  }

  void rebuild() override { recompute_range(0, groups_[0] - 1); }

  uint64_t nbytes() const override {
    uint64_t bytes = leaf_.nbytes() + bitmap_.nbytes();
    for (int level = 1; level <= top_; ++level) bytes += 2 * sum_[level].nbytes();
    return bytes;
  }

 private:
  static constexpr size_t kBlock = 128;
  static constexpr int kMaxLevels = 33;
  static constexpr size_t kBitmapGroups = 32768;  // levels with more groups are not deduplicated

  const float* sums(int level) const { return level == 0 ? leaf_.data() : sum_[level].data(); }
  const float* maxima(int level) const { return level == 0 ? leaf_.data() : max_[level].data(); }

  void descend_block(size_t n, double* mass, uint64_t* slot, float* priority) const {
    std::fill_n(slot, n, uint64_t{0});
    for (int level = top_; level >= 1; --level) {
      const float *here = sum_[level].data(), *below = sums(level - 1);
      for (size_t i = 0; i < n; ++i) {
        const uint64_t group = slot[i] * K;
        slot[i] = group + pick_group<K>(here + group, mass[i]);
        for (int line = 0; line < K; line += 16) __builtin_prefetch(below + slot[i] * K + line);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const uint64_t group = slot[i] * K;
      slot[i] = group + pick_group<K>(leaf_.data() + group, mass[i]);
      priority[i] = leaf_[slot[i]];
    }
  }

  // Recomputes a group's maximum. If it changed, its parent is noted as entry `at` of `changed_`.
  bool set_maximum(int level, uint64_t group, size_t at) {
    const float m = max_group<K>(maxima(level - 1) + group * K);
    const bool changes = m != max_[level][group];
    max_[level][group] = m;
    changed_[at] = group / K;
    return changes;
  }
  // Maxima above the leaves rarely change, so they go by their own list.
  size_t repair_maxima(int level, size_t n) {
    size_t changed = 0;
    for (size_t i = 0; i < n; ++i) changed += set_maximum(level, changed_[i], changed);
    return changed;
  }
  void recompute_range(uint64_t low, uint64_t high) {
    bool maxima_changed = true;
    for (int level = 1; level <= top_; ++level) {
      bool changes = false;
      for (uint64_t group = low; group <= high; ++group) {
        sum_[level][group] = sum_group<K>(sums(level - 1) + group * K);
        if (!maxima_changed) continue;
        const float m = max_group<K>(maxima(level - 1) + group * K);
        changes |= m != max_[level][group];
        max_[level][group] = m;
      }
      maxima_changed = changes;
      low /= K;
      high /= K;
    }
    set_root();
  }
  void prefetch_parent(int level, uint64_t i) const {
    __builtin_prefetch(sum_[level].data() + i, 1);
    if (level == 1) __builtin_prefetch(max_[1].data() + i, 1);
  }
  void set_root() {
    const float* top = sums(top_);
    total_ = 0;
    for (int i = 0; i < K; ++i) total_ += static_cast<double>(top[i]);
    maximum_ = max_group<K>(maxima(top_));
  }
  // Groups to recompute, each once and ascending where a bitmap is cheap; else only neighbouring
  // repeats are dropped, since recomputing twice does no harm.
  size_t unique(size_t n, uint64_t* list, size_t groups) {
    if (groups == 1) return list[0] = 0, 1;
    if (n == 1) return 1;
    return groups > kBitmapGroups || groups > n * 64 ? unique_neighbours(n, list)
                                                     : unique_bitmap(n, list, groups);
  }
  static size_t unique_neighbours(size_t n, uint64_t* list) {
    size_t m = 1;
    for (size_t i = 1; i < n; ++i) {
      list[m] = list[i];
      m += list[i] != list[m - 1];
    }
    return m;
  }
  size_t unique_bitmap(size_t n, uint64_t* list, size_t groups) {
    for (size_t i = 0; i < n; ++i) bitmap_[list[i] >> 6] |= uint64_t{1} << (list[i] & 63);
    size_t m = 0;
    for (size_t w = 0; w < (groups + 63) / 64; ++w) {
      uint64_t bits = bitmap_[w];
      bitmap_[w] = 0;
      for (; bits; bits &= bits - 1) list[m++] = w * 64 + std::countr_zero(bits);
    }
    return m;
  }

  int top_ = 0;  // number of parent levels
  size_t groups_[kMaxLevels] = {};
  Pages<float> sum_[kMaxLevels], max_[kMaxLevels];
  Pages<uint64_t> bitmap_;
  std::vector<uint64_t> changed_ = {0};  // groups below which a maximum changed
};

inline std::unique_ptr<PriorityTree> make_tree(unsigned fanout, uint64_t capacity) {
  switch (fanout) {
    case 2:
      return std::make_unique<SumTree<2>>(capacity);
    case 4:
      return std::make_unique<SumTree<4>>(capacity);
    case 8:
      return std::make_unique<SumTree<8>>(capacity);
    case 16:
      return std::make_unique<SumTree<16>>(capacity);
    case 32:
      return std::make_unique<SumTree<32>>(capacity);
    case 64:
      return std::make_unique<SumTree<64>>(capacity);
    default:
      throw Error("ConfigError", "fanout", "a power of two from 2 to 64", std::to_string(fanout));
  }
}

}  // namespace copal
