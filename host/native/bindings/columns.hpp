// SPDX-License-Identifier: MIT
// Python values to rows of a column: arrays of the exact dtype as they are, scalars and lists
// converted where their kind allows it.
//
// Cost: O(1) for an array of the exact dtype, a copy for anything else. Limits: bool, integers and
// floats of at most 8 bytes. Threads: under the GIL; the data may be read without it.
//
//   value --read--> ColumnValue { data, rows }      bool -> int -> float converts, never back
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "../schema.hpp"
#include "call.hpp"

inline int numpy_type(copal::Dtype d) {
  static constexpr int kTypes[] = {NPY_BOOL,   NPY_INT8,  NPY_INT16,   NPY_INT32,
                                   NPY_INT64,  NPY_UINT8, NPY_UINT16,  NPY_UINT32,
                                   NPY_UINT64, NPY_HALF,  NPY_FLOAT32, NPY_FLOAT64};
  return kTypes[static_cast<size_t>(d)];
}

inline bool same_type(int a, int b) {
  if (a == b) return true;
  const auto plain = [](int t) {
    return t == NPY_LONGLONG ? NPY_INT64 : t == NPY_ULONGLONG ? NPY_UINT64 : t;
  };
  return plain(a) == plain(b);
}

// A string's text; what UTF-8 cannot hold is escaped.
inline std::string text_of(PyObject* o) {
  if (const char* text = PyUnicode_AsUTF8(o)) return text;
  PyErr_Clear();
  nb::object escaped = nb::steal(PyObject_ASCII(o));
  if (!escaped.is_valid()) throw nb::python_error();
  return PyUnicode_AsUTF8(escaped.ptr());
}

inline std::string shape_text(const npy_intp* dims, int n) {
  std::string s = "(";
  for (int i = 0; i < n; ++i)
    s += std::to_string(dims[i]) + (n == 1 || i + 1 < n ? "," : "") + (i + 1 < n ? " " : "");
  return s + ")";
}

inline std::string dtype_text(PyArrayObject* a) {
  nb::object name = nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(a))).attr("name");
  return text_of(name.ptr());
}

// What to do about an object that would not become an array.
inline std::string hint_for(const std::string& message, const std::string& other) {
  if (message.find("requires grad") != std::string::npos) return "pass the tensor's `.detach()`";
  return other;
}

// One column of a call: where its rows are, and what keeps them alive.
struct ColumnValue {
  const std::byte* data = nullptr;
  bool batch = false;
  size_t rows = 1;
  nb::object owner;
  alignas(8) std::byte scalar[8];
};

class ColumnReader {
 public:
  explicit ColumnReader(const copal::Column& c)
      : name_(c.name),
        dtype_(c.dtype),
        type_(numpy_type(c.dtype)),
        dims_(c.shape.begin(), c.shape.end()) {}

  // Throws SchemaError.
  void read(PyObject* o, ColumnValue& out) const {
    out.batch = false;
    out.rows = 1;
    if (PyArray_Check(o)) return read_array(reinterpret_cast<PyArrayObject*>(o), out, true);
    if (dims_.empty() && read_scalar(o, out)) return;
    nb::object array = convert(o);
    read_array(reinterpret_cast<PyArrayObject*>(array.ptr()), out, false);
    if (!out.owner.is_valid()) out.owner = std::move(array);
  }

 private:
  void read_array(PyArrayObject* a, ColumnValue& out, bool exact) const {
    const bool same = same_type(PyArray_TYPE(a), type_);
    if (exact && !same) [[unlikely]] {
      fail(copal::dtype_name(dtype_), dtype_text(a),
           std::string("convert it with `.astype(\"") + copal::dtype_name(dtype_) + "\")`");
    }
    const int extra = PyArray_NDIM(a) - static_cast<int>(dims_.size());
    const npy_intp* dims = PyArray_DIMS(a);
    bool fits = extra == 0 || extra == 1;
    for (size_t i = 0; fits && i < dims_.size(); ++i) fits = dims[i + extra] == dims_[i];
    if (!fits) [[unlikely]]
      fail_shape(a);
    out.batch = extra == 1;
    out.rows = out.batch ? dims[0] : 1;
    if (!same || !PyArray_ISCARRAY_RO(a)) [[unlikely]] {
      nb::object copy = cast(a);
      out.owner = std::move(copy);
      a = reinterpret_cast<PyArrayObject*>(out.owner.ptr());
    }
    out.data = static_cast<const std::byte*>(PyArray_DATA(a));
  }

  // A contiguous copy in the column's dtype; the kind has been checked.
  nb::object cast(PyArrayObject* a) const {
    PyObject* copy =
        PyArray_FromArray(a, PyArray_DescrFromType(type_),
                          NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST);
    if (!copy) throw nb::python_error();
    return nb::steal(copy);
  }

  // The scalars that come from environments, without a detour over an array.
  bool read_scalar(PyObject* o, ColumnValue& out) const {
    using copal::Dtype;
    out.data = out.scalar;
    if (PyBool_Check(o) && dtype_ == Dtype::b8) return store<uint8_t>(out, o == Py_True);
    if (PyFloat_Check(o)) {
      if (dtype_ == Dtype::f32) return store<float>(out, static_cast<float>(PyFloat_AS_DOUBLE(o)));
      if (dtype_ == Dtype::f64) return store<double>(out, PyFloat_AS_DOUBLE(o));
    }
    if (PyLong_CheckExact(o) && (dtype_ == Dtype::i64 || dtype_ == Dtype::i32)) {
      int overflow = 0;
      const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
      if (overflow) return false;
      if (dtype_ == Dtype::i64) return store<int64_t>(out, v);
      if (v >= INT32_MIN && v <= INT32_MAX) return store<int32_t>(out, static_cast<int32_t>(v));
    }
    return false;
  }
  template <class T>
  static bool store(ColumnValue& out, T v) {
    std::memcpy(out.scalar, &v, sizeof v);
    return true;
  }

  // Anything else as an array whose values fit the column.
  nb::object convert(PyObject* o) const {
    PyObject* made = PyArray_FromAny(o, nullptr, 0, 0, NPY_ARRAY_CARRAY_RO, nullptr);
    if (!made) {
      nb::python_error e;
      const std::string message = message_of(e);
      fail(copal::dtype_name(dtype_), message,
           hint_for(message, "pass numbers, lists of equal length or arrays"));
    }
    nb::object array = nb::steal(made);
    auto* a = reinterpret_cast<PyArrayObject*>(made);
    const int from = rank(PyArray_TYPE(a)), to = rank(type_);
    if (from > to) {
      fail(copal::dtype_name(dtype_), dtype_text(a),
           std::string("convert it with `numpy.asarray(x).astype(\"") + copal::dtype_name(dtype_) +
               "\")`");
    }
    if (to == 1 && from == 1 && !same_type(PyArray_TYPE(a), type_)) {
      nb::object there = cast(a);
      PyObject* equal = PyObject_RichCompare(made, there.ptr(), Py_EQ);
      if (!equal) throw nb::python_error();
      nb::object all = nb::module_::import_("numpy").attr("all")(nb::steal(equal));
      if (!PyObject_IsTrue(all.ptr())) {
        fail(std::string("values that fit ") + copal::dtype_name(dtype_),
             text_of(nb::str(array).ptr()), "");
      }
    }
    return array;
  }
  // Order in which kinds convert: bool, integer, float; everything else comes last.
  static int rank(int type) {
    if (PyTypeNum_ISBOOL(type)) return 0;
    if (PyTypeNum_ISINTEGER(type)) return 1;
    return PyTypeNum_ISFLOAT(type) ? 2 : 3;
  }

  [[noreturn]] void fail_shape(PyArrayObject* a) const {
    std::vector<npy_intp> dims(dims_);
    const std::string row = shape_text(dims.data(), static_cast<int>(dims.size()));
    std::string batch = "(rows,";
    for (npy_intp d : dims_) batch += " " + std::to_string(d) + ",";
    if (!dims_.empty()) batch.pop_back();
    fail("shape " + row + " or " + batch + ")",
         "shape " + shape_text(PyArray_DIMS(a), PyArray_NDIM(a)), "");
  }
  [[noreturn]] void fail(std::string expected, std::string got, std::string hint) const {
    throw copal::Error("SchemaError", name_, std::move(expected), std::move(got), std::move(hint));
  }

  std::string name_;
  copal::Dtype dtype_;
  int type_;
  std::vector<npy_intp> dims_;
};

enum class Count { one, rows, one_or_rows };

// A contiguous array of `type` with one value, or one for each of n rows. Values are cast as
// `casting` of the array API would within a kind; throws SchemaError.
inline nb::object numbers(PyObject* o, int type, const char* field, size_t n, Count count) {
  PyObject* made = PyArray_FromAny(o, nullptr, 0, 0, 0, nullptr);
  if (!made) {
    nb::python_error e;
    const std::string message = message_of(e);
    throw copal::Error("SchemaError", field, "numbers", message, hint_for(message, ""));
  }
  nb::object any = nb::steal(made);
  auto* a = reinterpret_cast<PyArrayObject*>(made);
  const bool integers = PyTypeNum_ISINTEGER(PyArray_TYPE(a)) && !PyTypeNum_ISBOOL(PyArray_TYPE(a));
  if (!integers && !(PyTypeNum_ISFLOAT(type) && PyTypeNum_ISFLOAT(PyArray_TYPE(a)))) {
    throw copal::Error("SchemaError", field, PyTypeNum_ISFLOAT(type) ? "numbers" : "integers",
                       dtype_text(a));
  }
  const bool one = count != Count::rows && PyArray_NDIM(a) == 0;
  const bool rows =
      count != Count::one && PyArray_NDIM(a) == 1 && static_cast<size_t>(PyArray_DIM(a, 0)) == n;
  if (!one && !rows) {
    const std::string shape = "shape (" + std::to_string(n) + ",)";
    throw copal::Error("SchemaError", field,
                       count == Count::one    ? "one value"
                       : count == Count::rows ? shape
                                              : "one value or " + shape,
                       "shape " + shape_text(PyArray_DIMS(a), PyArray_NDIM(a)));
  }
  PyObject* cast =
      PyArray_FromArray(a, PyArray_DescrFromType(type),
                        NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST);
  if (!cast) throw nb::python_error();
  return nb::steal(cast);
}

// The data of an array that is already as wanted, else of a converted copy kept in `owner`.
template <class T>
const T* data_of(PyObject* o, int type, const char* field, size_t n, nb::object& owner) {
  auto* a = reinterpret_cast<PyArrayObject*>(o);
  if (!PyArray_Check(o) || !same_type(PyArray_TYPE(a), type) || PyArray_NDIM(a) != 1 ||
      static_cast<size_t>(PyArray_DIM(a, 0)) != n || !PyArray_ISCARRAY_RO(a)) [[unlikely]] {
    owner = numbers(o, type, field, n, Count::rows);
    a = reinterpret_cast<PyArrayObject*>(owner.ptr());
  }
  return static_cast<const T*>(PyArray_DATA(a));
}
