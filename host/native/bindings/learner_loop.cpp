// SPDX-License-Identifier: MIT
// Python face of LearnerLoop over the replay buffer.
#include "../learner_loop.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include "../replay.hpp"
#include "module.hpp"

using namespace copal;

using Loop = LearnerLoop<Replay, SampleTarget>;

static nb::dict counters(const Loop& loop) {
  const LoopCounters c = loop.counters();
  nb::dict d;
  d["updates"] = c.updates;
  d["stale"] = c.stale;
  d["published"] = c.published;
  d["staleness_sum"] = c.staleness_sum;
  d["staleness_max"] = c.staleness_max;
  d["staleness"] = c.staleness;
  d["sample_s"] = c.sample_s;
  d["step_s"] = c.step_s;
  d["priority_s"] = c.priority_s;
  d["publish_s"] = c.publish_s;
  d["wait_s"] = c.wait_s;
  return d;
}

void bind_learner_loop(nb::module_& m) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Loop>(
      m, "LearnerLoop",
      "Trains in threads of its own, without Python; see host/native/learner_loop.hpp.")
      .def(
          "__init__",
          [](Loop* self, Learner& learner, Replay& replay, WeightStore* store, double beta_start,
             double beta_end, uint64_t beta_updates, size_t async_learners) {
            new (self)
                Loop(learner, replay, store, {beta_start, beta_end, beta_updates, async_learners});
          },
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
          nb::arg("learner"), nb::arg("replay"), nb::arg("store").none() = nb::none(),
          nb::arg("beta_start") = 0.4, nb::arg("beta_end") = 1.0, nb::arg("beta_updates") = 1,
          nb::arg("async_learners") = 0)
      .def("start", &Loop::start, nb::arg("gate"), nb::keep_alive<1, 2>(),
           "Starts the threads: an update whenever the gate lets one.")
      .def("stop", &Loop::stop, Release(), "Ends after the updates under way.")
      .def("pause", &Loop::pause, Release(), "Returns between two updates; nothing changes then.")
      .def("resume", &Loop::resume, Release())
      .def("join", &Loop::join, nb::arg("timeout_s"), Release(),
           "Waits for the end (gate closed or drained, or failure); False after the timeout.")
      .def("run_once", &Loop::run_once, Release(),
           "One update on the calling thread, without the gate; the loop must not run.")
      .def("publish", &Loop::publish, Release(), "Publishes the acting network now.")
      .def("raise_if_failed", &Loop::raise_if_failed, "Raises what ended the loop, if anything.")
      .def("counters", &counters,
           "Updates, stale priorities, snapshots, staleness of gradients, and seconds by stage.")
      .def_prop_ro("running", &Loop::running)
      .def_prop_ro("beta", &Loop::beta, "Importance exponent of the next update.");
}
