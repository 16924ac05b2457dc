// SPDX-License-Identifier: MIT
// Part of replay.hpp: saving and loading, so that a loaded buffer goes on bit by bit like the saved
// one.
//
// Cost: O(filled rows) time, O(staged rows) memory. Limits: see file.hpp. Threads: `save` first
// waits for inserters that copy, then holds a shared lock: samplers go on, inserters and updaters
// wait.
//
//   sections: meta text | shape text | counters | leaves | packed rows | drawable bits | streams
//
// Parents are not stored: they are a function of the leaves.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "replay.hpp"

namespace copal {

namespace replay_detail {

enum Section : uint32_t { kMeta = 1, kShape, kCounters, kLeaves, kRows, kDrawable, kStreams };

// What two buffers must share for one to load the other's file.
inline std::string shape_text(const Schema& schema, const ReplayConfig& c) {
  std::string text;
  for (const Column& column : schema) {
    text += column.name + ":" + dtype_name(column.dtype);
    for (size_t d : column.shape) text += "," + std::to_string(d);
    text += ";";
  }
  return text + std::to_string(c.capacity) + " n_step " + std::to_string(c.n_step) + " share " +
         std::to_string(c.share_next_obs) + " seed " + std::to_string(c.seed);
}

class Packer {
 public:
  explicit Packer(std::vector<std::byte>& to) : to_(to) {}
  template <class T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&value, sizeof value);
  }
  void bytes(const void* data, size_t n) {
    const auto* p = static_cast<const std::byte*>(data);
    to_.insert(to_.end(), p, p + n);
  }
  void array(const std::vector<std::byte>& data) {
    (*this)(uint64_t{data.size()});
    bytes(data.data(), data.size());
  }

 private:
  std::vector<std::byte>& to_;
};

class Unpacker {
 public:
  Unpacker(const std::vector<std::byte>& from, const FileReader& file) : from_(from), file_(file) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::vector<std::byte> array() {
    const auto n = get<uint64_t>();
    const std::byte* p = take(n);
    return {p, p + n};
  }
  bool done() const { return at_ == from_.size(); }

 private:
  const std::byte* take(uint64_t n) {
    if (n > from_.size() - at_)
      file_.fail("streams that fit their section", "more", "it is damaged");
    at_ += n;
    return from_.data() + at_ - n;
  }

  const std::vector<std::byte>& from_;
  const FileReader& file_;
  size_t at_ = 0;
};

inline void pack_stream(Packer& put, int64_t key, const Stream& s) {
  put(key);
  put(uint64_t{s.first});
  put(uint64_t{s.count});
  put(uint8_t{s.open});
  put(uint64_t{s.window.size()});
  for (const Stream::Pending& p : s.window) {
    put.array(p.row);
    put.array(p.next_obs);
    put(p.reward);
    put(p.discount);
    put(p.priority);
  }
  put(uint64_t{s.unlinked.size()});
  for (const Unlinked& u : s.unlinked) put(u.id), put(u.priority);
}

inline std::pair<int64_t, Stream> unpack_stream(Unpacker& in) {
  Stream s;
  const auto key = in.get<int64_t>();
  s.first = in.get<uint64_t>();
  s.count = in.get<uint64_t>();
  s.open = in.get<uint8_t>() != 0;
  for (auto n = in.get<uint64_t>(); n; --n) {
    Stream::Pending p;
    p.row = in.array();
    p.next_obs = in.array();
    p.reward = in.get<double>();
    p.discount = in.get<double>();
    p.priority = in.get<float>();
    s.window.push_back(std::move(p));
  }
  for (auto n = in.get<uint64_t>(); n; --n) {
    const auto id = in.get<uint64_t>();
    s.unlinked.push_back({id, in.get<float>()});
  }
  return {key, std::move(s)};
}

}  // namespace replay_detail

inline void Replay::write_state(FileWriter& file) {
  using namespace replay_detail;
  const std::string shape = shape_text(schema_, config_);
  const uint64_t r = reserved_.load(), filled = std::min(r, config_.capacity);
  const std::array<uint64_t, 12> counters = {r,
                                             head_,
                                             rows_alive_,
                                             inserted_,
                                             draws_.load(),
                                             sampled_.load(),
                                             updated_.load(),
                                             stale_.load(),
                                             redrawn_.load(),
                                             clipped_.load(),
                                             pending_.load(),
                                             cuts_.load()};
  file.section(kShape, shape.data(), shape.size());
  file.section(kCounters, counters.data(), sizeof counters);
  file.section(kLeaves, tree_->leaves(), filled * sizeof(float));
  file.section(kRows, rows_.row(0), filled * rows_.layout().stride);
  file.section(kDrawable, drawable_.data(), drawable_.nbytes());
  std::vector<std::byte> streams;
  Packer put(streams);
  put(uint64_t{streams_.size()});
  // In the order of their numbers, so that equal buffers make equal files.
  std::vector<int64_t> keys;
  for (const auto& [key, stream] : streams_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  for (const int64_t key : keys) pack_stream(put, key, streams_.at(key));
  file.section(kStreams, streams.data(), streams.size());
}

inline void Replay::read_state(FileReader& file) {
  using namespace replay_detail;
  const std::string shape = shape_text(schema_, config_);
  const std::vector<std::byte> found = file.section(kShape);
  const std::string found_text(reinterpret_cast<const char*>(found.data()), found.size());
  if (found_text != shape) file.fail(shape, found_text, "build the buffer with the saved settings");
  std::array<uint64_t, 12> c;
  file.section(kCounters, c.data(), sizeof c);
  const uint64_t filled = std::min(c[0], config_.capacity);
  file.section(kLeaves, tree_->leaves(), filled * sizeof(float));
  file.section(kRows, rows_.row(0), filled * rows_.layout().stride);
  file.section(kDrawable, drawable_.data(), drawable_.nbytes());
  const std::vector<std::byte> streams = file.section(kStreams);
  Unpacker in(streams, file);
  streams_.clear();
  for (auto n = in.get<uint64_t>(); n; --n) streams_.insert(unpack_stream(in));
  reserved_ = c[0], head_ = c[1], rows_alive_ = c[2], inserted_ = c[3], draws_ = c[4];
  sampled_ = c[5], updated_ = c[6], stale_ = c[7], redrawn_ = c[8], clipped_ = c[9],
  pending_ = c[10], cuts_ = c[11];
  tree_->rebuild();
}

inline void Replay::save(const std::string& path, const std::string& meta) {
  FileWriter file(path);
  file.section(replay_detail::kMeta, meta.data(), meta.size());
  {
    ExclusiveGuard staging(staging_lock_);
    ExclusiveGuard guard(lock_);
    while (!writing_.empty()) {
      guard.unlock();
      std::this_thread::yield();
      guard.lock();
    }
    guard.release()->downgrade();
    SharedGuard shared(lock_, std::adopt_lock);
    write_state(file);
  }
  file.commit();
}

inline std::string Replay::read_meta(const std::string& path) {
  FileReader file(path);
  const std::vector<std::byte> text = file.section(replay_detail::kMeta);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

inline void Replay::load(const std::string& path) {
  FileReader file(path);
  file.section(replay_detail::kMeta);
  read_state(file);
}

}  // namespace copal
