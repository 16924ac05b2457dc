// SPDX-License-Identifier: MIT
// Says which instruction sets the processor has; holds no code of its own beyond the baseline.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

NB_MODULE(_isa, m) {
  m.def("supported", [] {
    std::vector<std::string> names;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) names.emplace_back("v4");
    if (__builtin_cpu_supports("x86-64-v3")) names.emplace_back("v3");
    if (__builtin_cpu_supports("x86-64-v2")) names.emplace_back("v2");
#else
    names.emplace_back("generic");
#endif
    return names;
  });
}
