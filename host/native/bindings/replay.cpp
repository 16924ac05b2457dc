// SPDX-License-Identifier: MIT
// Python face of Replay. `add`, `sample` and `update_priorities` take their arguments by the C API.
#include "../replay.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "batch.hpp"
#include "bound_replay.hpp"
#include "call.hpp"
#include "columns.hpp"
#include "replay_docs.hpp"

namespace {

using copal::Replay;

constexpr size_t kKeepGilRows = 8;  // a shorter call ends before another thread could use the GIL

BoundReplay& self_of(PyObject* self) {
  if (!nb::inst_ready(self)) {
    throw copal::Error("ConfigError", "replay", "a constructed buffer",
                       "one whose constructor was not called",
                       "call super().__init__(...) in the subclass");
  }
  return *nb::inst_ptr<BoundReplay>(self);
}

PyObject* ids_array(const std::vector<uint64_t>& ids) {
  npy_intp n = static_cast<npy_intp>(ids.size());
  PyObject* a = PyArray_SimpleNew(1, &n, NPY_UINT64);
  if (!a) throw nb::python_error();
  std::copy(ids.begin(), ids.end(),
            static_cast<uint64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(a))));
  return a;
}

// ---- add(**columns, stream=0, priority=None)

// The columns' values, in place for as many columns as most schemas have.
class AddCall {
 public:
  explicit AddCall(size_t columns) : columns_(columns) {
    if (columns <= kInPlace) return;
    more_values_.resize(columns);
    more_data_.resize(columns);
  }
  ColumnValue* values() { return columns_ <= kInPlace ? values_ : more_values_.data(); }
  const std::byte** data() { return columns_ <= kInPlace ? data_ : more_data_.data(); }

 private:
  static constexpr size_t kInPlace = 8;
  size_t columns_;
  ColumnValue values_[kInPlace];
  const std::byte* data_[kInPlace];
  std::vector<ColumnValue> more_values_;
  std::vector<const std::byte*> more_data_;
};

// Rows of the call: every column agrees on them.
size_t count_rows(const BoundReplay& r, const ColumnValue* values) {
  const ColumnValue& first = values[0];
  for (size_t i = 1; i < r.readers.size(); ++i) {
    if (values[i].batch == first.batch && values[i].rows == first.rows) continue;
    const auto text = [](const ColumnValue& v) {
      return v.batch ? "a batch of " + std::to_string(v.rows) : std::string("one row");
    };
    throw copal::Error("SchemaError", r.schema()[i].name,
                       text(first) + " as in `" + r.schema()[0].name + "`", text(values[i]));
  }
  return first.rows;
}

// Arrays in which `stream` and `priority` of the call live.
struct AddExtras {
  nb::object stream, priority;
};

void read_extras(PyObject* stream, PyObject* priority, size_t n, bool batch, copal::RowSource& rows,
                 AddExtras& keep) {
  if (stream && PyLong_CheckExact(stream)) {
    int overflow = 0;
    rows.one_stream = PyLong_AsLongLongAndOverflow(stream, &overflow);
    if (overflow) {
      throw copal::Error("SchemaError", "stream", "numbers from 0 to 2^63 - 1",
                         text_of(nb::str(stream).ptr()));
    }
  } else if (stream) {
    keep.stream = numbers(stream, NPY_INT64, "stream", n, batch ? Count::one_or_rows : Count::one);
    auto* a = reinterpret_cast<PyArrayObject*>(keep.stream.ptr());
    const auto* data = static_cast<const int64_t*>(PyArray_DATA(a));
    if (PyArray_NDIM(a) == 0) {
      rows.one_stream = *data;
    } else {
      rows.stream = data;
    }
  }
  if (priority && priority != Py_None) {
    keep.priority = numbers(priority, NPY_FLOAT32, "priority", n, batch ? Count::rows : Count::one);
    rows.priority = static_cast<const float*>(
        PyArray_DATA(reinterpret_cast<PyArrayObject*>(keep.priority.ptr())));
  }
}

PyObject* add(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  try {
    BoundReplay& r = self_of(self);
    if (count != 0) {
      throw copal::Error("SchemaError", "add", "columns by name",
                         std::to_string(count) + " unnamed", "write add(obs=..., ...)");
    }
    AddCall call(r.readers.size());
    ColumnValue* values = call.values();
    PyObject *stream = nullptr, *priority = nullptr;
    // Held, since converting a value may run Python code and so another call.
    const std::shared_ptr<const std::vector<size_t>> places = r.places(keywords);
    for (size_t k = 0; k < places->size(); ++k) {
      const size_t i = (*places)[k];
      if (i < r.readers.size()) {
        r.readers[i].read(args[k], values[i]);
        call.data()[i] = values[i].data;
      } else {
        (i == r.stream_place() ? stream : priority) = args[k];
      }
    }
    const size_t n = count_rows(r, values);
    copal::RowSource rows;
    AddExtras keep;
    rows.column = call.data();
    if (stream || priority) read_extras(stream, priority, n, values[0].batch, rows, keep);
    std::vector<uint64_t> ids;
    {
      Unlocked off(n > kKeepGilRows);
      r.add(n, rows, ids);
    }
    return ids_array(ids);
  } catch (...) {
    return set_python_error();
  }
}

// ---- sample(batch_size, beta=0.4, out=None)

// Makes the Python error of a conversion one that names the argument.
[[noreturn]] void throw_setting(const char* field, const char* expected) {
  nb::python_error e;
  throw copal::Error("ConfigError", field, expected, message_of(e));
}

PyObject* sample(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  static constexpr const char* kNames[] = {"batch_size", "beta", "out"};
  try {
    BoundReplay& r = self_of(self);
    PyObject* given[3] = {};
    sort_arguments("sample", kNames, args, count, keywords, given);
    if (!given[0]) {
      PyErr_SetString(PyExc_TypeError, "sample() needs `batch_size`");
      throw nb::python_error();
    }
    const Py_ssize_t n = PyNumber_AsSsize_t(given[0], nullptr);
    if (n == -1 && PyErr_Occurred()) throw_setting("batch_size", "an integer of at least 1");
    if (n < 1) throw copal::Error("ConfigError", "batch_size", "at least 1", std::to_string(n));
    const double beta = given[1] ? PyFloat_AsDouble(given[1]) : 0.4;
    if (beta == -1 && PyErr_Occurred()) throw_setting("beta", "a number in [0, 1]");
    nb::object out = given[2] && given[2] != Py_None
                         ? nb::borrow(given[2])
                         : nb::cast(new Batch(r.layout(n)), nb::rv_policy::take_ownership);
    Batch* batch = nullptr;
    if (!nb::try_cast(out, batch) || static_cast<Py_ssize_t>(batch->rows()) != n ||
        (given[2] && !batch->fits(r.layout(n)))) {
      throw copal::Error("SchemaError", "out",
                         "a batch of " + std::to_string(n) + " rows with this buffer's columns",
                         batch ? "another one" : Py_TYPE(out.ptr())->tp_name,
                         "pass what sample() returned, or nothing");
    }
    {
      Unlocked off(static_cast<size_t>(n) > kKeepGilRows);
      r.sample(n, static_cast<float>(beta), batch->target());
    }
    return out.release().ptr();
  } catch (...) {
    return set_python_error();
  }
}

// ---- update_priorities(ids, td_error) -> stale

PyObject* update_priorities(PyObject* self, PyObject* const* args, Py_ssize_t count,
                            PyObject* keywords) {
  static constexpr const char* kNames[] = {"ids", "td_error"};
  try {
    BoundReplay& r = self_of(self);
    PyObject* given[2] = {};
    sort_arguments("update_priorities", kNames, args, count, keywords, given);
    if (!given[0] || !given[1]) {
      PyErr_SetString(PyExc_TypeError, "update_priorities() needs `ids` and `td_error`");
      throw nb::python_error();
    }
    const Py_ssize_t n = PyObject_Size(given[0]);
    if (n < 0) {
      PyErr_Clear();
      throw copal::Error("SchemaError", "ids", "an array of ids", Py_TYPE(given[0])->tp_name);
    }
    nb::object ids_owner, td_owner;
    const auto* ids = data_of<uint64_t>(given[0], NPY_UINT64, "ids", n, ids_owner);
    const auto* td = data_of<float>(given[1], NPY_FLOAT32, "td_error", n, td_owner);
    size_t stale;
    {
      Unlocked off(static_cast<size_t>(n) > kKeepGilRows);
      stale = r.update_priorities(n, ids, td);
    }
    return PyLong_FromSize_t(stale);
  } catch (...) {
    return set_python_error();
  }
}

template <class F>
PyCFunction c_function(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

PyMethodDef kMethods[] = {
    {"add", c_function(add), METH_FASTCALL | METH_KEYWORDS, replay_docs::kAdd},
    {"sample", c_function(sample), METH_FASTCALL | METH_KEYWORDS, replay_docs::kSample},
    {"update_priorities", c_function(update_priorities), METH_FASTCALL | METH_KEYWORDS,
     replay_docs::kUpdate},
    {}};
PyType_Slot kSlots[] = {{Py_tp_methods, kMethods}, {}};

// ---- the rest

using ColumnSpec = std::tuple<std::string, std::string, std::vector<size_t>>;

copal::Schema schema_of(const std::vector<ColumnSpec>& columns) {
  std::vector<copal::Column> made;
  for (const auto& [name, dtype, shape] : columns) {
    size_t d = 0;
    while (d < std::size(copal::kDtypes) && dtype != copal::kDtypes[d].name) ++d;
    if (d == std::size(copal::kDtypes)) {
      throw copal::Error("SchemaError", name, "a bool, integer or float dtype of at most 8 bytes",
                         dtype);
    }
    made.emplace_back(name, static_cast<copal::Dtype>(d), shape);
  }
  return copal::Schema(std::move(made));
}

nb::object read_only_view(PyObject* owner, const copal::Column& c, const std::byte* data,
                          size_t stride, size_t rows) {
  std::vector<npy_intp> dims{static_cast<npy_intp>(rows)}, strides(c.shape.size() + 1);
  dims.insert(dims.end(), c.shape.begin(), c.shape.end());
  npy_intp step = static_cast<npy_intp>(copal::dtype_bytes(c.dtype));
  for (size_t i = c.shape.size(); i > 0; --i) strides[i] = step, step *= dims[i];
  strides[0] = static_cast<npy_intp>(stride);
  PyObject* a =
      PyArray_New(&PyArray_Type, static_cast<int>(dims.size()), dims.data(), numpy_type(c.dtype),
                  strides.data(), const_cast<std::byte*>(data), 0, NPY_ARRAY_ALIGNED, nullptr);
  if (!a) throw nb::python_error();
  nb::object view = nb::steal(a);
  Py_INCREF(owner);
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(a), owner) < 0)
    throw nb::python_error();
  return view;
}

nb::object column_view(nb::handle_t<BoundReplay> self, const std::string& name) {
  BoundReplay& r = self_of(self.ptr());
  const size_t i = r.schema().find(name);
  if (i == copal::Schema::npos) {
    throw copal::Error("SchemaError", name, "a column of the buffer", "an unknown one");
  }
  const auto [data, stride] = r.column_memory(i);
  if (!data) {
    throw copal::Error("SchemaError", name, "a stored column", "one that is shared with `obs`",
                       "sample it, or build the buffer with share_next_obs=False");
  }
  return read_only_view(self.ptr(), r.schema()[i], data, stride,
                        std::min(r.reserved(), r.capacity()));
}

nb::object leaves_view(nb::handle_t<BoundReplay> self) {
  BoundReplay& r = self_of(self.ptr());
  return read_only_view(self.ptr(), copal::Column("priority", copal::Dtype::f32, {}),
                        reinterpret_cast<const std::byte*>(r.leaves()), sizeof(float),
                        std::min(r.reserved(), r.capacity()));
}

nb::object rows_from(BoundReplay& r, uint64_t first, uint64_t most) {
  for (;;) {
    const auto [from, whole_rows] = r.whole(first);
    const size_t n = std::min<uint64_t>(whole_rows, most);
    if (n == 0) return nb::none();
    auto batch = std::make_unique<Batch>(std::make_shared<BatchLayout>(r.schema(), n));
    const copal::SampleTarget& target = batch->target();
    bool whole;
    {
      Unlocked off(n > kKeepGilRows);
      whole = r.copy_rows(from, n, target);
    }
    if (whole) return nb::cast(batch.release(), nb::rv_policy::take_ownership);
  }
}

void set_leaves(BoundReplay& r, uint64_t first, nb::handle leaf) {
  const Py_ssize_t n = PyObject_Size(leaf.ptr());
  if (n < 0) throw nb::python_error();
  nb::object owner;
  const auto* values = data_of<float>(leaf.ptr(), NPY_FLOAT32, "leaf", n, owner);
  Unlocked off(static_cast<size_t>(n) > kKeepGilRows);
  r.set_leaves(first, n, values);
}

nb::dict stats(const BoundReplay& r) {
  const copal::ReplayStats s = r.stats();
  nb::dict d;
  d["rows"] = s.rows;
  d["capacity"] = r.capacity();
  d["inserted"] = s.inserted;
  d["sampled"] = s.sampled;
  d["updated"] = s.updated;
  d["stale_updates"] = s.stale_updates;
  d["redrawn"] = s.redrawn;
  d["clipped"] = s.clipped;
  d["pending"] = s.pending;
  d["cuts"] = s.cuts;
  d["streams"] = s.streams;
  d["total_priority"] = s.total_priority;
  d["max_priority"] = s.max_priority;
  d["nbytes"] = r.nbytes();
  return d;
}

void bind_batch(nb::module_& m) {
  nb::class_<Batch>(m, "Batch", replay_docs::kBatch)
      .def("__getitem__", [](Batch& b, nb::handle key) { return b.get(key.ptr()); })
      .def("__contains__", [](const Batch& b, nb::handle key) { return b.contains(key.ptr()); })
      .def("__len__", &Batch::rows)
      .def("__repr__", &Batch::text)
      .def("__iter__", [](const Batch& b) { return nb::iter(nb::cast(b.keys())); })
      .def("keys", &Batch::keys, "Names of the columns, `discount` and `weight` included.")
      .def(
          "items",
          [](Batch& b) {
            nb::list items;
            for (const std::string& name : b.keys()) {
              nb::str key(name.c_str());
              items.append(nb::make_tuple(key, b.get(key.ptr())));
            }
            return items;
          },
          "Names and arrays.")
      .def_prop_ro("ids", &Batch::ids,
                   "uint64 [rows], insertion counter of each row, for `update_priorities`.")
      .def_prop_ro("weights", &Batch::weights,
                   "float32 [rows], importance weights (N P)^-beta over the batch's largest.");
}

}  // namespace

void bind_replay(nb::module_& m) {
  bind_batch(m);
  nb::class_<Replay>(m, "ReplayBase");
  nb::class_<BoundReplay, Replay>(m, "Replay", nb::type_slots(kSlots))
      .def(
          "__init__",
          [](BoundReplay* self, const std::vector<ColumnSpec>& columns, uint64_t capacity,
             double alpha, double eps, unsigned fanout, unsigned n_step, double gamma,
             bool share_next_obs, bool clip_bad, uint64_t seed) {
            try {
              new (self) BoundReplay(schema_of(columns), {capacity, alpha, eps, fanout, n_step,
                                                          gamma, share_next_obs, clip_bad, seed});
            } catch (const std::bad_alloc&) {
              throw copal::Error("ConfigError", "capacity", "rows that fit into memory",
                                 std::to_string(capacity) + " rows");
            }
          },
          nb::arg("columns"), nb::arg("capacity"), nb::arg("alpha"), nb::arg("eps"),
          nb::arg("fanout"), nb::arg("n_step"), nb::arg("gamma"), nb::arg("share_next_obs"),
          nb::arg("clip_bad"), nb::arg("seed"))
      .def(
          "end_episode",
          [](BoundReplay& r, int64_t stream) {
            std::vector<uint64_t> ids;
            {
              nb::gil_scoped_release off;
              r.end_episode(stream, ids);
            }
            return nb::steal(ids_array(ids));
          },
          nb::arg("stream") = 0, replay_docs::kEndEpisode)
      .def("column", &column_view, nb::arg("name"), replay_docs::kColumn)
      .def("_leaves", &leaves_view)
      .def("_rows_from", &rows_from, nb::arg("first"), nb::arg("most"))
      .def("_set_leaves", &set_leaves, nb::arg("first"), nb::arg("leaf"))
      .def("stats", &stats, replay_docs::kStats)
      .def("__len__", &BoundReplay::size)
      .def("__bool__", [](const BoundReplay&) { return true; })
      .def_prop_ro("capacity", &BoundReplay::capacity, "Rows of the ring.")
      .def_prop_ro("nbytes", &BoundReplay::nbytes, "Bytes of rows and tree.")
      .def_prop_ro("total_priority", &BoundReplay::total_priority, "Sum of the priorities.")
      .def_prop_ro("next_id", &BoundReplay::reserved,
                   "Id of the next row; ids count insertions and are never used twice.")
      .def("_save", &BoundReplay::save, nb::call_guard<nb::gil_scoped_release>())
      .def("_load", &BoundReplay::load, nb::call_guard<nb::gil_scoped_release>())
      .def_static("_read_meta", &BoundReplay::read_meta);
}
