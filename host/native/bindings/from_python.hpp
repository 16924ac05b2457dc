// SPDX-License-Identifier: MIT
// Reads the dictionaries that `to_json` of copal.program describes, and columns of a batch.
//
// Cost: O(operations), once a learner; O(1) a column unless it has to be copied. Limits: what is
// missing or of another type throws ProgramError. Thread-safety: the caller holds the GIL.
//
//   dictionary --update, program--> structs of program.hpp      batch --Columns--> ColumnView each
#pragma once
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "../load.hpp"
#include "../program.hpp"
#include "arrays.hpp"

namespace copal::from_python {

inline nb::object item(nb::handle d, const char* key) {
  PyObject* o = PyMapping_GetItemString(d.ptr(), key);
  if (!o) {
    PyErr_Clear();
    throw Error("ProgramError", key, "a dictionary as `to_dict` writes it", "no such key");
  }
  return nb::steal(o);
}

// `value` of the field `key` as a T.
template <class T>
T as(nb::handle value, const char* key) {
  T out;
  if (!nb::try_cast(value, out))
    throw Error("ProgramError", key, "a value as `to_dict` writes it", type_text(value));
  return out;
}

template <class T>
T get(nb::handle d, const char* key) {
  return as<T>(item(d, key), key);
}

// A list or tuple.
inline nb::object items(nb::handle d, const char* key) {
  nb::object list = item(d, key);
  if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr()))
    throw Error("ProgramError", key, "a list", type_text(list));
  return list;
}

inline Buffer buffer(nb::handle d) {
  const auto dtype = get<std::string>(d, "dtype");
  if (dtype != "float32" && dtype != "int32")
    throw Error("ProgramError", "dtype", "`float32` or `int32`", "`" + dtype + "`");
  return {get<std::string>(d, "name"), get<size_t>(d, "width"), dtype == "int32"};
}

// A buffer that is loaded, or made by the learner.
inline Buffer input(nb::handle d) {
  Buffer b = buffer(d);
  const auto source = get<std::string>(d, "source");
  if (source != "batch" && source != "normal")
    throw Error("ProgramError", b.name, "the source `batch` or `normal`", "`" + source + "`");
  b.is_noise = source == "normal";
  if (b.is_noise && b.is_int) throw Error("ProgramError", b.name, "noise in float32", "int32");
  return b;
}

inline Op op(nb::handle d) {
  Op o;
  o.kind = op_kind(get<std::string>(d, "kind"));
  for (nb::handle name : items(d, "inputs")) o.inputs.push_back(as<std::string>(name, "inputs"));
  nb::object output = item(d, "output");
  if (!output.is_none()) o.output = buffer(output);
  nb::object a = item(d, "attrs");
  switch (o.kind) {
    case OpKind::kDense:
    case OpKind::kDenseGradInput:
    case OpKind::kDenseGradWeight:
      o.network = get<std::string>(a, "network");
      o.weight = get<size_t>(a, "weight");
      o.bias = get<std::ptrdiff_t>(a, "bias");
      o.fan_in = get<size_t>(a, "fan_in");
      o.fan_out = get<size_t>(a, "fan_out");
      break;
    case OpKind::kParam:
      o.network = get<std::string>(a, "network");
      [[fallthrough]];
    case OpKind::kSumOverRows:
      o.offset = get<size_t>(a, "offset");
      break;
    case OpKind::kConst:
      o.value = static_cast<float>(get<double>(a, "value"));
      break;
    case OpKind::kSlice:
      o.start = get<size_t>(a, "start");
      o.stop = get<size_t>(a, "stop");
      break;
    default:
      break;
  }
  return o;
}

inline Program program(nb::handle d) {
  Program p;
  p.name = get<std::string>(d, "name");
  for (nb::handle n : items(d, "networks"))
    p.networks.push_back({get<std::string>(n, "name"), get<size_t>(n, "size")});
  for (nb::handle b : items(d, "inputs")) p.inputs.push_back(input(b));
  for (nb::handle o : items(d, "ops")) p.ops.push_back(op(o));
  nb::dict outputs = get<nb::dict>(d, "outputs");
  for (auto [role, name] : outputs)
    p.outputs.emplace_back(as<std::string>(role, "outputs"), as<std::string>(name, "outputs"));
  nb::object gradient = item(d, "gradient");
  if (!gradient.is_none()) p.gradient = as<std::string>(gradient, "gradient");
  return p;
}

inline Update update(nb::handle d) {
  Update u;
  u.name = get<std::string>(d, "name");
  for (nb::handle p : items(d, "phases")) {
    nb::object a = item(p, "optimiser"), norm = item(p, "max_grad_norm");
    Phase phase{program(item(p, "program")),
                {get<double>(a, "learning_rate"), get<double>(a, "beta1"), get<double>(a, "beta2"),
                 get<double>(a, "eps")},
                std::nullopt,
                get<size_t>(p, "every")};
    if (!norm.is_none()) phase.max_grad_norm = as<double>(norm, "max_grad_norm");
    u.phases.push_back(std::move(phase));
  }
  for (nb::handle t : items(d, "targets"))
    u.targets.push_back({get<std::string>(t, "source"), get<std::string>(t, "target"),
                         get<double>(t, "tau"), get<size_t>(t, "every")});
  u.policy = program(item(d, "policy"));
  u.seed = get<uint64_t>(d, "seed");
  return u;
}

inline Dtype dtype_of(PyArrayObject* a, const std::string& name) {
  switch (PyArray_TYPE(a)) {
    case NPY_BOOL:
      return Dtype::b8;
    case NPY_FLOAT32:
      return Dtype::f32;
    case NPY_FLOAT64:
      return Dtype::f64;
    default:
      break;
  }
  if (PyTypeNum_ISINTEGER(PyArray_TYPE(a))) {
    const bool is_signed = PyTypeNum_ISSIGNED(PyArray_TYPE(a));
    switch (PyArray_ITEMSIZE(a)) {
      case 1:
        return is_signed ? Dtype::i8 : Dtype::u8;
      case 2:
        return is_signed ? Dtype::i16 : Dtype::u16;
      case 4:
        return is_signed ? Dtype::i32 : Dtype::u32;
      case 8:
        return is_signed ? Dtype::i64 : Dtype::u64;
      default:
        break;
    }
  }
  throw Error("SchemaError", name, "a bool, integer, float32 or float64 array",
              type_text(reinterpret_cast<PyObject*>(a)), ".astype(...) converts");
}

// A view of column `b` with n rows of b.width values; `keep` holds a contiguous copy if one is
// needed.
inline ColumnView column(nb::handle h, const Buffer& b, size_t n, nb::object& keep) {
  const std::string expected =
      "an array [" + std::to_string(n) + (b.width > 1 ? ", " + std::to_string(b.width) : "") + "]";
  if (!PyArray_Check(h.ptr())) throw Error("SchemaError", b.name, expected, type_text(h));
  auto* a = reinterpret_cast<PyArrayObject*>(h.ptr());
  if (PyArray_NDIM(a) < 1 || static_cast<size_t>(PyArray_DIM(a, 0)) != n ||
      static_cast<size_t>(PyArray_SIZE(a)) != n * b.width)
    throw Error("SchemaError", b.name, expected, type_text(h));
  if (!PyArray_IS_C_CONTIGUOUS(a) || !PyArray_ISNOTSWAPPED(a)) {
    PyObject* copy = PyArray_FROM_OF(h.ptr(), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_NOTSWAPPED);
    if (!copy) throw nb::python_error();
    keep = nb::steal(copy);
    a = reinterpret_cast<PyArrayObject*>(copy);
  } else {
    keep = nb::borrow(h);
  }
  const Dtype dtype = dtype_of(a, b.name);
  check_loadable(b, dtype);
  return {static_cast<const std::byte*>(PyArray_DATA(a)), dtype};
}

// A column for every input, from a mapping of names to arrays; a replay's batch has `weights` too.
// Noise may be absent: its view has no data then.
struct Columns {
  Columns(nb::handle batch, const std::vector<Buffer>& inputs, size_t n)
      : views(inputs.size()), keep(inputs.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string& name = inputs[i].name;
      PyObject* o = PyMapping_GetItemString(batch.ptr(), name.c_str());
      if (!o && name == "weight") {
        PyErr_Clear();
        o = PyObject_GetAttrString(batch.ptr(), "weights");
      }
      if (!o) {
        PyErr_Clear();
        if (inputs[i].is_noise) continue;
        throw Error("SchemaError", name, "a column of the batch", "none of that name");
      }
      nb::object array = nb::steal(o);
      views[i] = column(array, inputs[i], n, keep[i]);
    }
  }
  std::vector<ColumnView> views;
  std::vector<nb::object> keep;
};

}  // namespace copal::from_python
