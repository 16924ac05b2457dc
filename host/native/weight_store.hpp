// SPDX-License-Identifier: MIT
// Published snapshots of the acting network's parameters. Actors read a whole snapshot with no lock
// and no copy while they act; the learner publishes the next one into a slot that nobody reads.
//
// Cost: acquire and release O(1), a few atomic operations; publish one copy of `size` floats.
// Limits: at most 62 snapshots held at once, above that publish waits. Memory grows with the number
// of snapshots held at the same time, 2 at least. Thread-safety: any number of readers, one writer.
//
//   current ----> slot 1 [refs 2 | version 640 | w0 w1 ... ]     readers hold it
//                 slot 0 [refs 0 | version 630 | w0 w1 ... ]     next one to write into
//
// A reader raises refs, then looks at `current` again; the writer moves `current`, then looks at
// refs. Both in sequentially consistent order, so a slot is never written while it is read.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "aligned.hpp"
#include "errors.hpp"

namespace copal {

class WeightStore {
  struct Slot {
    explicit Slot(size_t n) : weights(n) {}
    Aligned<float> weights;
    uint64_t version = 0;
    alignas(64) std::atomic<int> readers{0};
  };

 public:
  // A held snapshot; stays as it is until destroyed.
  class Snapshot {
   public:
    explicit Snapshot(Slot* slot) : slot_(slot) {}
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;
    ~Snapshot() { slot_->readers.fetch_sub(1, std::memory_order_release); }
    const float* weights() const { return slot_->weights.data(); }
    uint64_t version() const { return slot_->version; }

   private:
    Slot* slot_;
  };

  // Throws ConfigError if `size` is 0. The first snapshot is all zeros with version 0.
  explicit WeightStore(size_t size) : size_(size) {
    if (size == 0) throw Error("ConfigError", "size", "at least 1", "0");
    for (int i = 0; i < 2; ++i) slots_[i] = std::make_unique<Slot>(size);
  }

  size_t size() const { return size_; }

  // Holds the newest snapshot, and marks it as seen. Lock-free, never waits for the writer's copy.
  Snapshot acquire() {
    for (;;) {
      const int i = current_.load();
      slots_[i]->readers.fetch_add(1);
      if (current_.load() == i) {
        if (!seen_.load(std::memory_order_relaxed)) seen_.store(true, std::memory_order_relaxed);
        return Snapshot(slots_[i].get());
      }
      slots_[i]->readers.fetch_sub(1);
    }
  }

  // Copies `size()` floats in and makes them current. One writer at a time.
  void publish(const float* weights, uint64_t version) {
    const int i = free_slot();
    std::memcpy(slots_[i]->weights.data(), weights, size_ * sizeof(float));
    slots_[i]->version = version;
    seen_.store(false, std::memory_order_relaxed);
    version_.store(version, std::memory_order_relaxed);
    current_.store(i);
  }

  // Whether a reader took the current snapshot: if not, a newer one would not be looked at either.
  bool seen() const { return seen_.load(std::memory_order_relaxed); }

  // Version of the newest snapshot.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }

 private:
  int free_slot() {
    for (;;) {
      for (int i = 0; i < kSlots; ++i) {
        if (i == current_.load()) continue;
        if (!slots_[i]) slots_[i] = std::make_unique<Slot>(size_);
        if (slots_[i]->readers.load() == 0) return i;
      }
      std::this_thread::yield();
    }
  }

  static constexpr int kSlots = 64;

  const size_t size_;
  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  std::atomic<int> current_{0};
  std::atomic<bool> seen_{true};
  std::atomic<uint64_t> version_{0};
};

}  // namespace copal
