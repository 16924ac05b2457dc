// SPDX-License-Identifier: MIT
// Python faces of RatioGate and WeightStore, then of what uses them.
#include <nanobind/stl/string.h>

#include <cstring>

#include "../ratio_gate.hpp"
#include "../weight_store.hpp"
#include "arrays.hpp"

using namespace copal;

static void bind_gate(nb::module_& m) {
  nb::class_<RatioGate>(m, "RatioGate", "Holds the ratio of environment steps to updates.")
      .def(nb::init<double, uint64_t, uint64_t>(), nb::arg("update_interval"),
           nb::arg("learning_starts"), nb::arg("slack_steps"))
      .def(
          "acquire_steps",
          [](RatioGate& g, uint64_t n) {
            const int got = g.try_acquire_steps(n);
            if (got >= 0) return got == 1;
            nb::gil_scoped_release off;
            return g.acquire_steps(n);
          },
          nb::arg("n") = 1, "Waits until n more steps may be taken; False once closed or draining.")
      .def("cancel_steps", &RatioGate::cancel_steps, nb::arg("n"),
           "Gives back n acquired steps that were not taken.")
      .def("inserted", &RatioGate::inserted, nb::arg("n"),
           "Reports that n acquired steps are in the replay.")
      .def("acquire_update", &RatioGate::acquire_update,
           nb::call_guard<nb::gil_scoped_release>(),
           "Waits until the next update is due; False once closed or drained.")
      .def("complete_update", &RatioGate::complete_update, "Reports that the update is done.")
      .def("updates_due", &RatioGate::updates_due, "Updates that may be run now.")
      .def("drain", &RatioGate::drain, "Refuses further steps; updates that are due still run.")
      .def("close", &RatioGate::close, "Wakes everybody with False, now and ever after.")
      .def("set_counters", &RatioGate::set_counters, nb::arg("env_steps"), nb::arg("updates"),
           "Goes on from a checkpoint's counters.")
      .def_prop_ro("closed", &RatioGate::closed)
      .def_prop_ro("env_steps", [](RatioGate& g) { return g.counters().env_steps; })
      .def_prop_ro("updates", [](RatioGate& g) { return g.counters().updates; })
      .def_prop_ro("update_interval", &RatioGate::update_interval)
      .def_prop_ro("learning_starts", &RatioGate::learning_starts)
      .def_prop_ro("slack_steps", &RatioGate::slack_steps)
      .def("counters", [](RatioGate& g) {
        const auto c = g.counters();
        nb::dict d;
        d["env_steps"] = c.env_steps;
        d["inserted"] = c.inserted;
        d["updates"] = c.updates;
        return d;
      });
}

static void bind_store(nb::module_& m) {
  nb::class_<WeightStore>(m, "WeightStore", "Published snapshots of one parameter vector.")
      .def(nb::init<size_t>(), nb::arg("size"))
      .def(
          "publish",
          [](WeightStore& s, nb::handle weights, uint64_t version) {
            s.publish(float_vector(weights, "weights", s.size()), version);
          },
          nb::arg("weights"), nb::arg("version"), "Copies the vector in and makes it current.")
      .def(
          "read",
          [](WeightStore& s) {
            nb::object copy = new_array({static_cast<npy_intp>(s.size())}, NPY_FLOAT32);
            const auto snapshot = s.acquire();
            std::memcpy(array_data(copy), snapshot.weights(), s.size() * sizeof(float));
            return nb::make_tuple(copy, snapshot.version());
          },
          "A copy of the newest snapshot, and its version.")
      .def_prop_ro("size", &WeightStore::size)
      .def_prop_ro("version", &WeightStore::version);
}

void bind_learner(nb::module_& m) {
  bind_gate(m);
  bind_store(m);
}
