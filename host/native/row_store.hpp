// SPDX-License-Identifier: MIT
// The packed rows of a replay buffer: writes a row, and gathers the columns of many rows.
//
// Cost: O(bytes). A gather keeps the rows of two blocks in flight by prefetching; all rows at once
// would overflow the processor's queue of misses. Limits: none beyond the layout's.
//
// Threads: `gather` may copy a row while another thread overwrites it. The caller finds out
// afterwards and discards the copy. Plain copies are what processors do best, so that is what a
// normal build does; under ThreadSanitizer they are made of relaxed atomic words, which the
// language allows.
//
//   slot s:  | columns by item size | discount | link | padding |   at s * stride
//   gather:  prefetch block b + 2, follow the links of block b + 1, copy block b column by column
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pages.hpp"
#include "schema.hpp"

namespace copal {

#if defined(__SANITIZE_THREAD__)
// `shared` names the side that another thread may touch; both are copied as relaxed words.
template <class Word>
inline void copy_word(std::byte* to, const std::byte* from) {
  Word w = std::atomic_ref<Word>(*reinterpret_cast<Word*>(const_cast<std::byte*>(from)))
               .load(std::memory_order_relaxed);
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(to)).store(w, std::memory_order_relaxed);
}
inline void copy_bytes(std::byte* to, const std::byte* from, size_t n) {
  const auto both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  size_t i = 0;
  if (both % 8 == 0) {
    for (; i + 8 <= n; i += 8) copy_word<uint64_t>(to + i, from + i);
  }
  for (; i < n; ++i) copy_word<uint8_t>(to + i, from + i);
}
#else
inline void copy_bytes(std::byte* to, const std::byte* from, size_t n) { std::memcpy(to, from, n); }
#endif

// Calls f with the size as a constant where a copy of it is a few instructions.
template <class F>
inline void with_size(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(std::integral_constant<size_t, 1>{});
    case 2:
      return f(std::integral_constant<size_t, 2>{});
    case 4:
      return f(std::integral_constant<size_t, 4>{});
    case 8:
      return f(std::integral_constant<size_t, 8>{});
    case 16:
      return f(std::integral_constant<size_t, 16>{});
    case 24:
      return f(std::integral_constant<size_t, 24>{});
    case 32:
      return f(std::integral_constant<size_t, 32>{});
    case 64:
      return f(std::integral_constant<size_t, 64>{});
    default:
      return f(bytes);
  }
}

class RowStore {
 public:
  RowStore(const Schema& schema, RowLayout layout, uint64_t capacity, size_t obs, size_t next_obs)
      : layout_(std::move(layout)), capacity_(capacity), obs_(obs), next_obs_(next_obs) {
    for (const Column& c : schema) bytes_.push_back(c.bytes);
    if (capacity > (SIZE_MAX >> 1) / layout_.stride) throw std::bad_alloc();
    data_ = Pages<std::byte>(capacity * layout_.stride);
  }

  const RowLayout& layout() const { return layout_; }
  uint64_t nbytes() const { return data_.nbytes(); }
  std::byte* row(uint64_t slot) { return data_.data() + slot * layout_.stride; }
  const std::byte* row(uint64_t slot) const { return data_.data() + slot * layout_.stride; }
  bool linked() const { return layout_.link != Schema::npos; }

  // Packs n rows, which start at row `from` of the columns, into a run of slots.
  void write_columns(uint64_t slot, size_t n, const std::byte* const* column, size_t from) {
    for (size_t at = 0; at < n; at += kBlock) {
      const size_t rows = std::min(kBlock, n - at);
      for (size_t c = 0; c < bytes_.size(); ++c) {
        std::byte* to = row(slot + at) + layout_.offset[c];
        const std::byte* source = column[c] + (from + at) * bytes_[c];
        // By value: a byte written might else be a part of what is captured.
        with_size(bytes_[c], [to, source, rows, stride = layout_.stride](auto size) {
          for (size_t i = 0; i < rows; ++i) copy_bytes(to + i * stride, source + i * size, size);
        });
      }
    }
  }

  // Copies n packed rows into a run of slots.
  void write_rows(uint64_t slot, size_t n, const std::byte* rows) {
    copy_bytes(row(slot), rows, n * layout_.stride);
  }

  void set_link(uint64_t slot, uint32_t distance) {
    copy_bytes(row(slot) + layout_.link, reinterpret_cast<const std::byte*>(&distance), 4);
  }

  // Copies rows slot[0..n) to rows [at, at + n) of the columns and of `discount`; nullptr skips.
  void gather(size_t n, const uint64_t* slot, size_t at, std::byte* const* column,
              float* discount) const {
    const bool follow = linked() && column[next_obs_];
    std::array<uint64_t, 2 * kBlock> next;  // slots of the next observations, by block parity
    const auto at_block = [&](size_t b) { return std::min(b * kBlock, n); };
    const auto resolve = [&](size_t b) {
      if (!follow) return;
      for (size_t i = at_block(b); i < at_block(b + 1); ++i) {
        next[i % next.size()] = successor(slot[i]);
        prefetch(next[i % next.size()]);
      }
    };
    for (size_t i = 0; i < at_block(2); ++i) prefetch(slot[i]);
    resolve(0);
    for (size_t b = 0; b * kBlock < n; ++b) {
      const size_t low = at_block(b), high = at_block(b + 1);
      for (size_t i = at_block(b + 2); i < at_block(b + 3); ++i) prefetch(slot[i]);
      resolve(b + 1);
      for (size_t c = 0; c < bytes_.size(); ++c) {
        if (!column[c]) continue;
        std::byte* to = column[c] + (at + low) * bytes_[c];
        if (layout_.offset[c] == Schema::npos) {
          copy_field(high - low, &next[low % next.size()], layout_.offset[obs_], bytes_[c], to);
        } else {
          copy_field(high - low, slot + low, layout_.offset[c], bytes_[c], to);
        }
      }
      if (discount && layout_.discount != Schema::npos) {
        copy_field(high - low, slot + low, layout_.discount, 4,
                   reinterpret_cast<std::byte*>(discount + at + low));
      }
    }
  }

 private:
  static constexpr size_t kBlock = 16;

  void copy_field(size_t n, const uint64_t* slot, size_t offset, size_t bytes,
                  std::byte* to) const {
    const std::byte* from = data_.data() + offset;
    with_size(bytes, [n, slot, from, to, stride = layout_.stride](auto size) {
      for (size_t i = 0; i < n; ++i) copy_bytes(to + i * size, from + slot[i] * stride, size);
    });
  }

  // The link of a row that is being overwritten may be any number; the result is a slot all the
  // same.
  uint64_t successor(uint64_t slot) const {
    uint32_t distance;
    copy_bytes(reinterpret_cast<std::byte*>(&distance), row(slot) + layout_.link, 4);
    uint64_t next = slot + distance;
    if (next >= capacity_) next -= capacity_;
    return next < capacity_ ? next : 0;
  }

  void prefetch(uint64_t slot) const {
    const std::byte* p = row(slot);
    const size_t end = std::min<size_t>(layout_.bytes, kPrefetchBytes);
    for (size_t i = 0; i < end; i += 64) __builtin_prefetch(p + i);
    __builtin_prefetch(p + end - 1);
  }
  static constexpr size_t kPrefetchBytes = 512;  // of a longer row the hardware fetches the rest

  RowLayout layout_;
  uint64_t capacity_;
  size_t obs_, next_obs_;      // columns of a linked layout
  std::vector<size_t> bytes_;  // of each column
  Pages<std::byte> data_;
};

}  // namespace copal
