// SPDX-License-Identifier: MIT
// The extension module: error translation, then one function for each group of classes.
#define COPAL_OWNS_NUMPY_API
#include "module.hpp"

#include <nanobind/stl/string.h>

#include "../errors.hpp"

static int numpy_ready() {
  import_array1(-1);
  return 0;
}

NB_MODULE(COPAL_MODULE, m) {
  if (numpy_ready() < 0) throw nb::python_error();
  m.attr("isa") = COPAL_ISA;
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const copal::Error& e) {
      nb::object type = nb::module_::import_("copal.errors").attr(e.type.c_str());
      nb::object error = type(e.field, e.expected, e.got, e.hint);
      PyErr_SetObject(type.ptr(), error.ptr());
    }
  });
  bind_replay(m);
  bind_learner(m);
  bind_learner_loop(m);
}
