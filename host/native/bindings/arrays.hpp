// SPDX-License-Identifier: MIT
// NumPy arrays in and out, by NumPy's own C API: an argument costs a tenth of an `nb::ndarray`.
//
// Cost: O(1), nothing is copied. Limits: C-contiguous, aligned, native byte order; everything else
// is refused. Thread-safety: the caller holds the GIL.
//
//   object --as_array--> PyArrayObject --PyArray_DATA--> floats      new_array --array_data--> T*
#pragma once
#include <string>
#include <vector>

#include "../errors.hpp"
#include "module.hpp"

namespace copal {

inline std::string shape_text(PyArrayObject* a) {
  std::string text = "[";
  for (int i = 0; i < PyArray_NDIM(a); ++i)
    text += (i ? ", " : "") + std::to_string(PyArray_DIM(a, i));
  return text + "]";
}

inline std::string type_text(nb::handle h) {
  if (!PyArray_Check(h.ptr())) return nb::cast<std::string>(nb::str(h.type()));
  auto* a = reinterpret_cast<PyArrayObject*>(h.ptr());
  nb::object dtype = nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(a)));
  return std::string(nb::str(dtype).c_str()) + " " + shape_text(a);
}

// The array behind `h`, C-contiguous and aligned, of NumPy type `type` (-1: any).
// Throws SchemaError that names `field`.
inline PyArrayObject* as_array(nb::handle h, const char* field, int type, const char* expected) {
  if (PyArray_Check(h.ptr())) {
    auto* a = reinterpret_cast<PyArrayObject*>(h.ptr());
    if ((type < 0 || PyArray_TYPE(a) == type) && PyArray_IS_C_CONTIGUOUS(a) &&
        PyArray_ISALIGNED(a) && PyArray_ISNOTSWAPPED(a))
      return a;
  }
  throw Error("SchemaError", field, expected, type_text(h),
              "numpy.ascontiguousarray(x, dtype) converts");
}

inline const float* float_vector(nb::handle h, const char* field, size_t size) {
  const std::string expected = "contiguous float32 [" + std::to_string(size) + "]";
  auto* a = as_array(h, field, NPY_FLOAT32, expected.c_str());
  if (PyArray_NDIM(a) != 1 || static_cast<size_t>(PyArray_DIM(a, 0)) != size)
    throw Error("SchemaError", field, expected, type_text(h));
  return static_cast<const float*>(PyArray_DATA(a));
}

inline nb::object new_array(const std::vector<npy_intp>& shape, int type) {
  PyObject* o =
      PyArray_SimpleNew(static_cast<int>(shape.size()), const_cast<npy_intp*>(shape.data()), type);
  if (!o) throw nb::python_error();
  return nb::steal(o);
}

template <class T = float>
T* array_data(const nb::object& o) {
  return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(o.ptr())));
}

}  // namespace copal
