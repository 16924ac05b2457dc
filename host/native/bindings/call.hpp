// SPDX-License-Identifier: MIT
// Calls from Python without nanobind's dispatch: an argument costs 5 ns by the C API and 90 ns as
// an `nb::ndarray`, which is more than inserting a row does.
//
// Limits: METH_FASTCALL | METH_KEYWORDS. Threads: under the GIL, but for the scope of `Unlocked`.
//
//   args, keywords --sort_arguments--> places by name      C++ exception --> Python error, null
#pragma once
#include <exception>
#include <new>
#include <string>

#include "../errors.hpp"
#include "module.hpp"

// Sets the error of copal.errors that `e` names.
inline void set_error(const copal::Error& e) {
  try {
    nb::object type = nb::module_::import_("copal.errors").attr(e.type.c_str());
    nb::object error = type(e.field, e.expected, e.got, e.hint);
    PyErr_SetObject(type.ptr(), error.ptr());
  } catch (nb::python_error& inner) {
    inner.restore();
  }
}

// Kind and text of a Python error, without the trace that its `what()` holds.
inline std::string message_of(const nb::python_error& e) {
  return std::string(nb::str(e.type().attr("__name__")).c_str()) + ": " +
         nb::str(e.value()).c_str();
}

// Sets the Python error that belongs to the exception in flight; returns null.
inline PyObject* set_python_error() {
  try {
    throw;
  } catch (const copal::Error& e) {
    set_error(e);
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

// Drops the GIL for a scope if asked to; an uncontended round costs 30 ns.
class Unlocked {
 public:
  explicit Unlocked(bool on) : state_(on ? PyEval_SaveThread() : nullptr) {}
  ~Unlocked() {
    if (state_) PyEval_RestoreThread(state_);
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Sorts the arguments of a call with METH_FASTCALL | METH_KEYWORDS into N named places.
template <size_t N>
inline void sort_arguments(const char* function, const char* const (&names)[N],
                           PyObject* const* args, Py_ssize_t count, PyObject* keywords,
                           PyObject* (&out)[N]) {
  if (static_cast<size_t>(count) > N) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %zu arguments", function, N);
    throw nb::python_error();
  }
  for (Py_ssize_t i = 0; i < count; ++i) out[i] = args[i];
  const Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* name = PyTuple_GET_ITEM(keywords, k);
    size_t i = 0;
    while (i < N && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) ++i;
    if (i == N || out[i]) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected or repeated argument '%U'", function,
                   name);
      throw nb::python_error();
    }
    out[i] = args[count + k];
  }
}
