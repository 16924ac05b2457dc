// SPDX-License-Identifier: MIT
// Parallel learners over a real replay while rows are inserted, synchronous and asynchronous; meant
// to run under a sanitizer. Usage: parallel_learners [seconds]
//
//   2 actors: gate -> insert -> snapshot, which must be whole       loop: 3 learners
//   main: pauses, where nothing may move; resumes; at last every update that was due is done
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "../learner_loop.hpp"
#include "../replay.hpp"
#include "regression.hpp"

using namespace copal;
using namespace copal::regression;
using Loop = LearnerLoop<Replay, SampleTarget>;

constexpr size_t kBatch = 50, kLearners = 3, kRows = 4;

static std::unique_ptr<Replay> make_replay() {
  ReplayConfig config;
  config.capacity = 256;  // inserters overtake samplers now and then
  return std::make_unique<Replay>(
      Schema({Column("obs", Dtype::f32, {kObs}), Column("action", Dtype::i64, {}),
              Column("goal", Dtype::f32, {})}),
      config);
}

static void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

static void insert(Replay& replay, uint64_t seed) {
  float obs[kRows * kObs], goal[kRows];
  int64_t action[kRows];
  for (size_t i = 0; i < kRows * kObs; ++i) obs[i] = static_cast<float>((seed + i) % 7) / 7.f;
  for (size_t i = 0; i < kRows; ++i) action[i] = static_cast<int64_t>((seed + i) % kActions);
  for (size_t i = 0; i < kRows; ++i) goal[i] = static_cast<float>(action[i]) / 2.f;
  const std::byte* columns[] = {reinterpret_cast<std::byte*>(obs),
                                reinterpret_cast<std::byte*>(action),
                                reinterpret_cast<std::byte*>(goal)};
  RowSource source;
  source.column = columns;
  std::vector<uint64_t> ids;
  replay.add(kRows, source, ids);
}

static void act(RatioGate& gate, Replay& replay, WeightStore& store, uint64_t seed) {
  std::vector<float> copy(store.size());
  uint64_t last = 0;
  while (gate.acquire_steps(kRows)) {
    insert(replay, seed += 13);
    const auto snapshot = store.acquire();
    std::memcpy(copy.data(), snapshot.weights(), store.size() * sizeof(float));
    check(snapshot.version() >= last, "an older snapshot came after a newer one");
    last = snapshot.version();
    check(std::memcmp(copy.data(), snapshot.weights(), store.size() * sizeof(float)) == 0,
          "a snapshot changed while it was held");
    gate.inserted(kRows);
  }
}

static bool run(bool async, double seconds) {
  const auto owned = make_replay();
  Replay& replay = *owned;
  Learner learner(make_update(), kBatch, async ? 1 : kLearners, async ? 1 : 2, "auto");
  initialise(learner);
  WeightStore store(kSize);
  RatioGate gate(1.5, 64, 8);
  LoopSettings settings;
  settings.async_learners = async ? kLearners : 0;
  Loop loop(learner, replay, &store, settings);
  loop.publish();
  loop.start(gate);
  std::vector<std::thread> actors;
  for (uint64_t i = 0; i < 2; ++i)
    actors.emplace_back([&, i] { act(gate, replay, store, i * 1000); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    loop.pause();
    const std::vector<float> before = parameters(learner);
    check(learner.updates() == gate.counters().updates, "an update is under way in a pause");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    check(before == parameters(learner), "parameters changed in a pause");
    loop.resume();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  gate.drain();
  for (std::thread& t : actors) t.join();
  check(loop.join(60), "the loop did not drain");
  loop.raise_if_failed();
  const auto done = gate.counters();
  const LoopCounters counters = loop.counters();
  const auto due = static_cast<uint64_t>((static_cast<double>(done.env_steps) - 64) / 1.5);
  check(done.updates == due && counters.updates == due && learner.updates() == due,
        "updates are missing");
  uint64_t counted = 0;
  for (uint64_t n : counters.staleness) counted += n;
  check(counted == due, "updates are missing in the histogram of staleness");
  for (float x : parameters(learner)) check(std::isfinite(x), "a parameter is not finite");
  std::printf("%s: %llu updates, staleness at most %llu, %llu stale priorities\n",
              async ? "async" : "sync", static_cast<unsigned long long>(due),
              static_cast<unsigned long long>(counters.staleness_max),
              static_cast<unsigned long long>(counters.stale));
  return due > 0;
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  return run(false, seconds / 2) && run(true, seconds / 2) ? 0 : 1;
}
