// SPDX-License-Identifier: MIT
// What the binding files share. NumPy's C API is initialised once, in module.cpp.
//
//   module.cpp: bind_replay (replay.cpp), bind_learner (learner.cpp), bind_learner_loop,
//              bind_fpga
#pragma once
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL copal_numpy_api
#ifndef COPAL_OWNS_NUMPY_API
#define NO_IMPORT_ARRAY
#endif
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <numpy/arrayobject.h>

namespace nb = nanobind;

void bind_replay(nb::module_& m);
void bind_learner(nb::module_& m);
void bind_learner_loop(nb::module_& m);
void bind_fpga(nb::module_& m);
