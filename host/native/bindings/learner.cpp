// SPDX-License-Identifier: MIT
// Python faces of RatioGate, WeightStore, Learner and Policy.
#include "../learner.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "../gemm_bench.hpp"
#include "../policy.hpp"
#include "../ratio_gate.hpp"
#include "../weight_store.hpp"
#include "from_python.hpp"

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
      .def("acquire_update", &RatioGate::acquire_update, nb::call_guard<nb::gil_scoped_release>(),
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
      .def_prop_ro("learning_starts", &RatioGate::learning_starts)
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
            const float* vector = float_vector(weights, "weights", s.size());
            nb::gil_scoped_release off;  // a reader that is waited for may need the GIL
            s.publish(vector, version);
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

static npy_intp dim(size_t n) { return static_cast<npy_intp>(n); }

static nb::object copy_of(const float* x, size_t n) {
  nb::object copy = new_array({dim(n)}, NPY_FLOAT32);
  std::memcpy(array_data(copy), x, n * sizeof(float));
  return copy;
}

static nb::object step(Learner& l, nb::handle batch) {
  const from_python::Columns columns(batch, l.inputs(), l.batch());
  nb::object td = new_array({dim(l.batch())}, NPY_FLOAT32);
  float* data = array_data(td);
  std::memset(data, 0, l.batch() * sizeof(float));
  nb::gil_scoped_release off;
  l.step(columns.views.data(), data);
  return td;
}

static nb::object gradient(Learner& l, nb::handle batch) {
  const from_python::Columns columns(batch, l.inputs(), l.batch());
  size_t size = 0;
  l.with_optimiser(l.trained()[0], [&](TrainedState&, size_t n) { size = n; });
  nb::object td = new_array({dim(l.batch())}, NPY_FLOAT32), g = new_array({dim(size)}, NPY_FLOAT32);
  std::memset(array_data(td), 0, l.batch() * sizeof(float));
  double loss;
  {
    nb::gil_scoped_release off;
    loss = l.gradient(columns.views.data(), array_data(g), array_data(td));
  }
  return nb::make_tuple(g, td, loss);
}

static nb::dict metrics(const Learner& l) {
  std::vector<double> values;
  {
    nb::gil_scoped_release off;  // the learner is locked for the length of an update
    values = l.metrics();
  }
  nb::dict d;
  for (size_t i = 0; i < values.size(); ++i) d[l.metric_names()[i].c_str()] = values[i];
  return d;
}

static nb::dict network_sizes(const Learner& l) {
  nb::dict d;
  for (const NetworkState& n : l.networks()) d[n.name.c_str()] = n.size;
  return d;
}

static void set_parameters(Learner& l, const std::string& name, nb::handle vector) {
  l.with_parameters(name, [&](float* p, size_t n) {
    std::memcpy(p, float_vector(vector, name.c_str(), n), n * sizeof(float));
  });
}

static nb::object get_parameters(Learner& l, const std::string& name) {
  nb::object copy;
  l.with_parameters(name, [&](const float* p, size_t n) { copy = copy_of(p, n); });
  return copy;
}

static nb::object get_optimiser(Learner& l, const std::string& name) {
  nb::object state;
  l.with_optimiser(name, [&](const TrainedState& t, size_t n) {
    state = nb::make_tuple(copy_of(t.m.data(), n), copy_of(t.v.data(), n), t.steps);
  });
  return state;
}

static void set_optimiser(Learner& l, const std::string& name, nb::handle first, nb::handle second,
                          uint64_t steps) {
  l.with_optimiser(name, [&](TrainedState& t, size_t n) {
    const float* m = float_vector(first, "first_moment", n);
    const float* v = float_vector(second, "second_moment", n);
    std::memcpy(t.m.data(), m, n * sizeof(float));
    std::memcpy(t.v.data(), v, n * sizeof(float));
    t.steps = steps;
  });
}

static void bind_learner_class(nb::module_& m) {
  nb::class_<Learner>(m, "Learner", "Runs an Update on batches; see host/native/learner.hpp.")
      .def(
          "__init__",
          [](Learner* self, nb::handle update, size_t batch_size, size_t learners, size_t threads,
             const std::string& gemm) {
            new (self) Learner(from_python::update(update), batch_size, learners,
                               threads ? threads : learners, gemm);
          },
          nb::arg("update"), nb::arg("batch_size"), nb::arg("learners") = 1, nb::arg("threads") = 0,
          nb::arg("gemm") = "auto",
          "`update`: json.loads(Update.to_json()); threads 0: as many as learners.")
      .def("step", &step, nb::arg("batch"), "One update; returns the TD errors, float32 [B].")
      .def("gradient", &gradient, nb::arg("batch"),
           "(averaged gradient of the first phase, TD errors, mean loss); changes nothing.")
      .def("metrics", &metrics,
           "Means over the last batch of the Program's outputs, and grad_norm.")
      .def("networks", &network_sizes, "Name to number of floats.")
      .def("trained", &Learner::trained, "Names of the networks that have an optimiser state.")
      .def("parameters", &get_parameters, nb::arg("network"), "A copy, float32 [size].")
      .def("set_parameters", &set_parameters, nb::arg("network"), nb::arg("vector"))
      .def("optimiser", &get_optimiser, nb::arg("network"),
           "(first moment, second moment, steps), copies.")
      .def("set_optimiser", &set_optimiser, nb::arg("network"), nb::arg("first_moment"),
           nb::arg("second_moment"), nb::arg("steps"))
      .def_prop_rw("updates", &Learner::updates, &Learner::set_updates,
                   nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("flops", &Learner::flops,
                   "Operations of an update's dense products, all phases run.");
}

// An observation [width] or [n, width] or [n] for width 1: the number of rows.
static size_t rows_of_observation(PyArrayObject* a, const Buffer& b) {
  const auto size = static_cast<size_t>(PyArray_SIZE(a));
  const int rank = PyArray_NDIM(a);
  if (size > 0 && size % b.width == 0 &&
      (size == b.width || (rank >= 1 && static_cast<size_t>(PyArray_DIM(a, 0)) == size / b.width)))
    return size / b.width;
  throw Error("SchemaError", b.name,
              "float32 [" + std::to_string(b.width) + "] or [n, " + std::to_string(b.width) + "]",
              type_text(reinterpret_cast<PyObject*>(a)));
}

// A policy's input columns and the outputs that are asked for.
struct PolicyCall {
  PolicyCall(const Policy& p, nb::handle obs) : policy(p), views(p.inputs().size()) {
    const size_t i = input(false);
    const Buffer& b = p.inputs()[i];
    PyArrayObject* a = as_array(obs, b.name.c_str(), NPY_FLOAT32, "a contiguous float32 array");
    rows = rows_of_observation(a, b);
    views[i] = {static_cast<const std::byte*>(PyArray_DATA(a)), Dtype::f32};
  }
  size_t input(bool is_noise) const {
    size_t i = 0;
    while (i < policy.inputs().size() && policy.inputs()[i].is_noise != is_noise) ++i;
    return i;
  }
  // Takes the noise where the outputs asked for need it; None is none.
  void ask(Policy::Outputs outputs, nb::handle noise) {
    asked = outputs;
    const size_t i = input(true);
    if (i == policy.inputs().size() || !policy.needs(asked, i)) return;
    const Buffer& b = policy.inputs()[i];
    const std::string expected =
        "float32 [" + std::to_string(rows) + ", " + std::to_string(b.width) + "]";
    if (noise.is_none())
      throw Error("SchemaError", b.name, expected, "None", "this output is a random one");
    PyArrayObject* a = as_array(noise, b.name.c_str(), NPY_FLOAT32, "a contiguous float32 array");
    if (static_cast<size_t>(PyArray_SIZE(a)) != rows * b.width)
      throw Error("SchemaError", b.name, expected, type_text(noise));
    views[i] = {static_cast<const std::byte*>(PyArray_DATA(a)), Dtype::f32};
  }
  // Runs on the newest snapshot of a store, or on a vector. The GIL is given up for many rows only.
  uint64_t run(nb::handle source, void* const* out) {
    WeightStore* store;
    if (nb::try_cast(source, store)) {
      if (store->size() != policy.size())
        throw Error("ConfigError", "source", std::to_string(policy.size()) + " floats",
                    std::to_string(store->size()));
      const auto snapshot = store->acquire();
      act(snapshot.weights(), out);
      return snapshot.version();
    }
    act(float_vector(source, "source", policy.size()), out);
    return 0;
  }
  void act(const float* weights, void* const* out) {
    if (rows <= kHoldGil) return policy.act(asked, weights, views.data(), rows, out);
    nb::gil_scoped_release off;
    policy.act(asked, weights, views.data(), rows, out);
  }
  static constexpr size_t kHoldGil = 4;
  const Policy& policy;
  std::vector<ColumnView> views;
  size_t rows = 0;
  Policy::Outputs asked = 0;
};

static nb::object act(const Policy& p, nb::handle source, nb::handle obs, nb::handle noise) {
  PolicyCall call(p, obs);
  const bool quiet = noise.is_none() && p.without_noise() != 0;
  call.ask(quiet ? p.without_noise() : p.all(), noise);
  nb::dict result;
  void* out[Policy::kMaxOutputs] = {};
  for (size_t i = 0; i < p.outputs().size(); ++i) {
    if (!(call.asked >> i & 1)) continue;
    const Value& v = p.output(i);
    const bool flat = v.width == 1 && v.is_int;
    nb::object array =
        flat ? new_array({dim(call.rows)}, NPY_INT64)
             : new_array({dim(call.rows), dim(v.width)}, v.is_int ? NPY_INT64 : NPY_FLOAT32);
    out[i] = array_data<void>(array);
    result[p.outputs()[i].role.c_str()] = array;
  }
  call.run(source, out);
  return result;
}

// Writes the output called `role` only; returns the version of the weights.
static uint64_t act_into(const Policy& p, nb::handle source, nb::handle obs, nb::handle to,
                         const char* role, nb::handle noise) {
  PolicyCall call(p, obs);
  void* out[Policy::kMaxOutputs] = {};
  for (size_t i = 0; i < p.outputs().size(); ++i) {
    if (p.outputs()[i].role != role) continue;
    const Value& v = p.output(i);
    PyArrayObject* a = as_array(to, "out", v.is_int ? NPY_INT64 : NPY_FLOAT32,
                                v.is_int ? "contiguous int64" : "contiguous float32");
    if (static_cast<size_t>(PyArray_SIZE(a)) != call.rows * v.width || !PyArray_ISWRITEABLE(a))
      throw Error("SchemaError", "out",
                  "writeable, " + std::to_string(call.rows * v.width) + " values", type_text(to));
    out[i] = PyArray_DATA(a);
    call.ask(1u << i, noise);
    return call.run(source, out);
  }
  throw Error("ProgramError", "role", "an output of the policy", std::string("`") + role + "`");
}

// One observation, and noise or not.
static void check_policy_inputs(const Program& p) {
  size_t columns = 0, noises = 0;
  for (const Buffer& b : p.inputs) {
    if (b.is_int) throw Error("ProgramError", b.name, "float32 inputs of a policy", "int32");
    ++(b.is_noise ? noises : columns);
  }
  if (columns != 1 || noises > 1)
    throw Error("ProgramError", "inputs", "one observation, and one noise at most",
                std::to_string(columns) + " and " + std::to_string(noises));
}

static void bind_policy(nb::module_& m) {
  nb::class_<Policy>(m, "Policy", "Runs an acting Program; any number of threads may call it.")
      .def(
          "__init__",
          [](Policy* self, nb::handle program, const std::string& gemm) {
            const Program p = from_python::program(program);
            check_policy_inputs(p);
            new (self) Policy(p, gemm);
          },
          nb::arg("program"), nb::arg("gemm") = "auto", "`program`: Program.to_dict().")
      .def("act", &act, nb::arg("source"), nb::arg("obs"), nb::arg("noise") = nb::none(),
           "Outputs by role, one row an observation. `source`: a WeightStore or float32 [size], "
           "the\n"
           "networks one behind another. Without `noise` (float32 [n, width]) only the outputs "
           "that\n"
           "need none.")
      .def("act_into", &act_into, nb::arg("source"), nb::arg("obs"), nb::arg("out"),
           nb::arg("role") = "action", nb::arg("noise") = nb::none(),
           "Writes one output into `out`; returns the version of the weights.")
      .def_prop_ro(
          "network", [](const Policy& p) { return p.networks()[0]; }, "The first one.")
      .def_prop_ro("networks", &Policy::networks, "Names, in the order of the weight vector.")
      .def_prop_ro("size", &Policy::size, "Floats of all networks.");
}

void bind_learner(nb::module_& m) {
  nb::list kinds;
  for (const char* name : kOpNames) kinds.append(name);
  m.attr("op_kinds") = nb::tuple(kinds);
  m.attr("has_own_gemm") = kHasOwnGemm;
  m.def(
      "product_seconds",
      [](const std::string& kind, const std::string& gemm, size_t rows, size_t fan_in,
         size_t fan_out, size_t repeats) {
        const OpKind op = op_kind(kind);
        if (op > OpKind::kDenseGradWeight || rows * fan_in * fan_out * repeats == 0)
          throw Error("ConfigError", "product_seconds", "a dense kind and sizes of at least 1",
                      kind);
        return product_seconds(op, gemm_kind(gemm), rows, fan_in, fan_out, repeats);
      },
      nb::arg("kind"), nb::arg("gemm"), nb::arg("rows"), nb::arg("fan_in"), nb::arg("fan_out"),
      nb::arg("repeats"), "Seconds of one bare dense product.");
  bind_gate(m);
  bind_store(m);
  bind_learner_class(m);
  bind_policy(m);
}
