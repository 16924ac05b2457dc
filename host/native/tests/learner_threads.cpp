// SPDX-License-Identifier: MIT
// Learner loop, actors, gate and weight store at once, on a replay that makes its rows up; meant to
// run under a sanitizer. Usage: learner_threads [seconds]
//
//   2 actors: gate -> snapshot, which must be whole -> report      loop: 3 learners on 2 threads
//   main: pauses, reads the state, resumes; at last the parameters must equal those of one thread
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../learner_loop.hpp"
#include "../policy.hpp"
#include "regression.hpp"

using namespace copal;
using namespace copal::regression;

constexpr size_t kBatch = 50;

struct Draw {
  std::vector<std::byte*> column;
  float* discount = nullptr;
  uint64_t* id = nullptr;
  float* weight = nullptr;
};

// Rows are a function of how often `sample` was called.
class MadeUpReplay {
 public:
  MadeUpReplay()
      : schema_(
            {{"obs", Dtype::f32, {kObs}}, {"action", Dtype::i64, {}}, {"goal", Dtype::f32, {}}}) {}
  const Schema& schema() const { return schema_; }
  template <class Split>
  void sample(size_t n, float beta, const Draw& out, Split&& split) {
    split([](size_t, size_t) {});
    sample(n, beta, out);
  }
  void sample(size_t n, float, const Draw& out) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < kObs; ++j) number(out.column[0], i * kObs + j);
      const int64_t action = static_cast<int64_t>(next() % kActions);
      std::memcpy(out.column[1] + i * sizeof action, &action, sizeof action);
      number(out.column[2], i);
      out.id[i] = i;
      out.weight[i] = 1;
    }
  }
  size_t update_priorities(size_t, const uint64_t*, const float*) { return 0; }

 private:
  uint64_t next() {
    return state_ = state_ * 6364136223846793005u + 1442695040888963407u, state_ >> 33;
  }
  void number(std::byte* to, size_t i) {
    const float x = static_cast<float>(next() % 2001) / 1000.f - 1.f;
    std::memcpy(to + i * sizeof x, &x, sizeof x);
  }
  Schema schema_;
  uint64_t state_ = 1;
};

static void act(RatioGate& gate, WeightStore& store, const Policy& policy) {
  const float obs[kObs] = {1, 2, 3, 4, 5};
  const ColumnView view{reinterpret_cast<const std::byte*>(obs), Dtype::f32};
  uint64_t last = 0;
  while (gate.acquire_steps(2)) {
    const auto snapshot = store.acquire();
    float first[kActions], again[kActions];
    void* out = first;
    policy.act(policy.all(), snapshot.weights(), &view, 1, &out);
    out = again;
    policy.act(policy.all(), snapshot.weights(), &view, 1, &out);
    if (std::memcmp(first, again, sizeof first) != 0 || snapshot.version() < last) {
      std::fprintf(stderr, "a snapshot changed while it was held\n");
      std::abort();
    }
    last = snapshot.version();
    gate.inserted(2);
  }
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  MadeUpReplay replay;
  Learner learner(make_update(), kBatch, 3, 2, "auto");
  initialise(learner);
  WeightStore store(kSize);
  RatioGate gate(1.5, 10, 4);
  const Policy policy(learner.update().policy, "auto");
  LearnerLoop<MadeUpReplay, Draw> loop(learner, replay, &store, {});
  loop.publish();
  loop.start(gate);
  std::vector<std::thread> actors;
  for (int i = 0; i < 2; ++i) actors.emplace_back([&] { act(gate, store, policy); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    loop.pause();
    if (learner.updates() != gate.counters().updates) std::abort();
    loop.resume();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  gate.drain();
  for (std::thread& t : actors) t.join();
  if (!loop.join(60)) std::abort();
  loop.raise_if_failed();

  MadeUpReplay same;
  Learner alone(make_update(), kBatch, 3, 1, "auto");
  initialise(alone);
  LearnerLoop<MadeUpReplay, Draw> once(alone, same, nullptr, {});
  for (uint64_t i = learner.updates(); i > 0; --i) once.run_once();
  const bool equal = parameters(learner) == parameters(alone);
  std::printf("%llu updates, %llu snapshots, threads %s\n",
              static_cast<unsigned long long>(learner.updates()),
              static_cast<unsigned long long>(loop.counters().published),
              equal ? "do not matter" : "MATTER");
  return equal && learner.updates() > 0 ? 0 : 1;
}
