// SPDX-License-Identifier: MIT
// The extension module: error translation, then one function for each group of classes.
#define COPAL_OWNS_NUMPY_API
#include "module.hpp"

#include <nanobind/stl/string.h>

#include "call.hpp"

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
      set_error(e);
    }
  });
  bind_replay(m);
  bind_learner(m);
  bind_learner_loop(m);
  bind_fpga(m);
}
