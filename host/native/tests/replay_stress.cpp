// SPDX-License-Identifier: MIT
// Stress test of the replay buffer: inserters, samplers, updaters and a follower on rows that check
// themselves.
//
//   g++ -std=c++20 -O2 -Ihost/native host/native/tests/replay_stress.cpp -pthread -o replay_stress
//   ./replay_stress [seconds]
//   ./replay_stress rate CAPACITY INSERTERS SAMPLERS BATCH SECONDS     throughput of one load
//
// Every value of a row is a function of one number, so a torn row shows. After the threads have
// ended the tree's root must equal the sum of its leaves. Exit status 1 if anything is wrong.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "replay.hpp"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <time.h>
#endif

using namespace copal;

namespace {

struct Case {
  const char* name;
  uint64_t capacity;
  size_t width;  // floats of an observation
  int inserters, samplers;
  size_t batch, rows;  // sampled and inserted a call
  unsigned n_step;
  bool share;
  bool follower = false;  // a thread more, that copies every row
};

struct Result {
  std::atomic<uint64_t> inserted{0}, sampled{0}, torn{0}, stale{0};
  double seconds = 0, cores = 0;
};

// Arrays of the columns of n rows.
struct Rows {
  Rows(size_t n, size_t width)
      : width(width),
        obs(n * width),
        next(n * width),
        reward(n),
        action(n),
        terminated(n),
        truncated(n) {}

  std::vector<std::byte*> columns() {
    const auto p = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
    return {p(obs), p(action), p(reward), p(next), p(terminated), p(truncated)};
  }
  // Row i is step v + i of an endless stream, with an episode's end now and then.
  void fill(uint64_t v, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const float now = static_cast<float>((v + i) & 0xfffff),
                  later = static_cast<float>((v + i + 1) & 0xfffff);
      std::fill_n(&obs[i * width], width, now);
      std::fill_n(&next[i * width], width, later);
      action[i] = static_cast<int64_t>(now);
      reward[i] = now;
      terminated[i] = (v + i) % 61 == 0;
      truncated[i] = 0;
    }
  }
  // Whether row i is one that `fill` makes.
  bool whole(size_t i, unsigned n_step, bool checks_next) const {
    const float now = obs[i * width], later = next[i * width];
    bool ok = action[i] == static_cast<int64_t>(now);
    for (size_t j = 0; j < width; ++j)
      ok &= obs[i * width + j] == now && next[i * width + j] == later;
    const uint64_t steps = (static_cast<uint64_t>(later) - static_cast<uint64_t>(now)) & 0xfffff;
    if (checks_next) ok &= steps >= 1 && steps <= n_step;
    return ok && (n_step > 1 || reward[i] == now);
  }

  size_t width;
  std::vector<float> obs, next, reward;
  std::vector<int64_t> action;
  std::vector<uint8_t> terminated, truncated;
};

Schema make_schema(size_t width) {
  return Schema({Column("obs", Dtype::f32, {width}), Column("action", Dtype::i64, {}),
                 Column("reward", Dtype::f32, {}), Column("next_obs", Dtype::f32, {width}),
                 Column("terminated", Dtype::b8, {}), Column("truncated", Dtype::b8, {})});
}

void pin([[maybe_unused]] int core) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % std::max(1u, std::thread::hardware_concurrency()), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#endif
}

double cpu_seconds() {
#if defined(__linux__)
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
#else
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
#endif
}

void insert(Replay& replay, const Case& c, int stream, const std::atomic<bool>& stop,
            Result& result) {
  Rows rows(c.rows, c.width);
  const std::vector<std::byte*> columns = rows.columns();
  RowSource source;
  source.column = columns.data();
  source.one_stream = stream;
  std::vector<uint64_t> ids;
  uint64_t v = 7919u * stream;
  do {  // at least once, however short of processors the machine is
    rows.fill(v, c.rows);
    v += c.rows;
    ids.clear();
    replay.add(c.rows, source, ids);
    result.inserted.fetch_add(c.rows, std::memory_order_relaxed);
  } while (!stop.load(std::memory_order_relaxed));
}

void sample(Replay& replay, const Case& c, int seed, const std::atomic<bool>& stop,
            Result& result) {
  Rows rows(c.batch, c.width);
  std::vector<uint64_t> id(c.batch);
  std::vector<float> weight(c.batch), discount(c.batch), td(c.batch);
  const SampleTarget target{rows.columns(), discount.data(), id.data(), weight.data()};
  uint64_t round = 0;
  do {
    replay.sample(c.batch, 0.4f, target);
    uint64_t torn = 0;
    for (size_t i = 0; i < c.batch; ++i) {
      torn += !rows.whole(i, c.n_step, true) || !(weight[i] > 0 && weight[i] <= 1.0001f);
      td[i] = 0.01f + static_cast<float>(mix(round * 977 + i + seed) >> 44) * 1e-6f;
    }
    result.torn.fetch_add(torn, std::memory_order_relaxed);
    result.stale.fetch_add(replay.update_priorities(c.batch, id.data(), td.data()),
                           std::memory_order_relaxed);
    result.sampled.fetch_add(c.batch, std::memory_order_relaxed);
    ++round;
  } while (!stop.load(std::memory_order_relaxed));
}

// Copies the rows as they come, in the order of their ids, and gives some of them priorities.
void follow(Replay& replay, const Case& c, const std::atomic<bool>& stop, Result& result) {
  Rows rows(c.batch, c.width);
  std::vector<uint64_t> id(c.batch);
  std::vector<float> discount(c.batch), leaf(c.batch, 0.5f);
  const SampleTarget target{rows.columns(), discount.data(), id.data(), nullptr};
  uint64_t next = 0;
  do {
    const auto [first, n] = replay.whole(next);
    const size_t count = std::min(n, c.batch);
    if (count == 0 || !replay.copy_rows(first, count, target)) {
      std::this_thread::yield();
      continue;
    }
    uint64_t torn = first < next;
    for (size_t i = 0; i < count; ++i) torn += !rows.whole(i, c.n_step, true) || id[i] != first + i;
    result.torn.fetch_add(torn, std::memory_order_relaxed);
    if (first % 16 == 0) replay.set_leaves(first, count, leaf.data());
    next = first + count;
  } while (!stop.load(std::memory_order_relaxed));
}

void load(Replay& replay, const Case& c, double seconds, Result& result) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> stop{false};
  const auto begin = Clock::now();
  const double cpu = cpu_seconds();
  std::vector<std::thread> threads;
  for (int k = 0; k < c.inserters; ++k) {
    threads.emplace_back([&, k] { pin(k), insert(replay, c, k, stop, result); });
  }
  for (int k = 0; k < c.samplers; ++k) {
    threads.emplace_back([&, k] { pin(c.inserters + k), sample(replay, c, k, stop, result); });
  }
  if (c.follower) threads.emplace_back([&] { follow(replay, c, stop, result); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& t : threads) t.join();
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  result.cores = (cpu_seconds() - cpu) / result.seconds;
}

void prefill(Replay& replay, const Case& c, uint64_t n) {
  Rows rows(256, c.width);
  const std::vector<std::byte*> columns = rows.columns();
  RowSource source;
  source.column = columns.data();
  std::vector<uint64_t> ids;
  const size_t step = std::min<uint64_t>(256, replay.capacity());
  for (uint64_t v = 0; v < n; v += step) {
    rows.fill(v, step);
    ids.clear();
    replay.add(step, source, ids);
  }
  replay.end_episode(0, ids);  // an inserter begins this stream anew
}

ReplayConfig config_of(const Case& c) {
  ReplayConfig config;
  config.capacity = c.capacity;
  config.n_step = c.n_step;
  config.share_next_obs = c.share;
  config.seed = 1;
  return config;
}

bool root_is_sum(const Replay& replay) {
  double sum = 0;
  for (uint64_t i = 0; i < replay.capacity(); ++i) sum += static_cast<double>(replay.leaves()[i]);
  return std::fabs(replay.total_priority() - sum) <= 1e-5 * sum;
}

bool run(const Case& c, double seconds) {
  Replay replay(make_schema(c.width), config_of(c));
  prefill(replay, c, 2 * c.capacity);
  Result r;
  load(replay, c, seconds, r);
  const ReplayStats s = replay.stats();
  const bool right =
      r.torn == 0 && root_is_sum(replay) && r.sampled > 0 && (c.inserters == 0 || r.inserted > 0);
  std::printf(
      "%-28s inserted %9llu sampled %9llu torn %llu redrawn %llu stale %llu cores %.2f %s\n",
      c.name, static_cast<unsigned long long>(r.inserted.load()),
      static_cast<unsigned long long>(r.sampled.load()),
      static_cast<unsigned long long>(r.torn.load()), static_cast<unsigned long long>(s.redrawn),
      static_cast<unsigned long long>(s.stale_updates), r.cores, right ? "ok" : "WRONG");
  return right;
}

constexpr Case kCases[] = {
    {"80 B rows", 2048, 8, 1, 1, 256, 64, 1, false},
    {"80 B rows, four threads", 512, 8, 2, 2, 128, 16, 1, false},
    {"one row a call", 64, 8, 2, 2, 64, 1, 1, false},
    {"batch above capacity", 8, 8, 2, 1, 64, 8, 1, false},
    {"a single slot", 1, 8, 1, 2, 4, 1, 1, false},
    {"8 KB rows", 64, 1024, 1, 2, 32, 4, 1, false},
    {"56 KB rows", 16, 7168, 2, 1, 16, 2, 1, false},
    {"n-step", 512, 8, 2, 1, 128, 16, 3, false},
    {"followed", 512, 8, 2, 1, 64, 16, 1, false, true},
    {"followed, n-step", 256, 8, 2, 1, 64, 16, 3, false, true},
    {"followed, 8 KB rows", 64, 1024, 2, 1, 32, 4, 1, false, true},
    {"shared observations", 512, 8, 2, 1, 128, 16, 1, true},
    {"shared, n-step, large rows", 256, 1024, 2, 1, 32, 8, 3, true},
};

int rate(char** argument) {
  const Case c{"rate",
               std::strtoull(argument[0], nullptr, 10),
               8,
               std::atoi(argument[1]),
               std::atoi(argument[2]),
               std::strtoull(argument[3], nullptr, 10),
               64,
               1,
               false};
  Replay replay(make_schema(c.width), config_of(c));
  prefill(replay, c, c.capacity);
  Result r;
  load(replay, c, std::atof(argument[4]), r);
  std::printf(
      "{\"sampled_per_s\": %.0f, \"inserted_per_s\": %.0f, \"torn\": %llu, \"cores\": %.3f}\n",
      static_cast<double>(r.sampled) / r.seconds, static_cast<double>(r.inserted) / r.seconds,
      static_cast<unsigned long long>(r.torn.load()), r.cores);
  return r.torn != 0;
}

}  // namespace

int main(int count, char** argument) {
  if (count == 7 && std::strcmp(argument[1], "rate") == 0) return rate(argument + 2);
  const double seconds = (count > 1 ? std::atof(argument[1]) : 5) / std::size(kCases);
  bool right = true;
  for (const Case& c : kCases) right &= run(c, seconds);
  return right ? 0 : 1;
}
