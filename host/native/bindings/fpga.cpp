// SPDX-License-Identifier: MIT
// Python face of the FPGA model's executor.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "../fpga/machine.hpp"
#include "arrays.hpp"
#include "module.hpp"

using namespace copal;
using copal::fpga::Machine;

template <class T>
static T* memory(const nb::dict& arrays, const char* name, int type) {
  auto* a = as_array(arrays[name], name, type, "a contiguous memory of the model");
  return static_cast<T*>(PyArray_DATA(a));
}

static fpga::Memories memories(const nb::dict& arrays, int p, int a_bits, int b_bits,
                               int sum_bits) {
  fpga::Memories mem;
  mem.p = p;
  mem.a_bits = a_bits;
  mem.b_bits = b_bits;
  mem.sum_bits = sum_bits;
  mem.v = memory<float>(arrays, "v", NPY_FLOAT32);
  mem.w = memory<float>(arrays, "w", NPY_FLOAT32);
  mem.t = memory<float>(arrays, "t", NPY_FLOAT32);
  mem.m = memory<float>(arrays, "m", NPY_FLOAT32);
  mem.s = memory<float>(arrays, "s", NPY_FLOAT32);
  mem.k = memory<float>(arrays, "k", NPY_FLOAT32);
  mem.g = memory<int32_t>(arrays, "g", NPY_INT32);
  mem.gb = memory<int32_t>(arrays, "gb", NPY_INT32);
  mem.a = memory<int32_t>(arrays, "a", NPY_INT32);
  mem.b = memory<int32_t>(arrays, "b", NPY_INT32);
  mem.bias = memory<int64_t>(arrays, "bias", NPY_INT64);
  mem.mask = memory<uint8_t>(arrays, "mask", NPY_BOOL);
  mem.range = memory<uint64_t>(arrays, "range", NPY_UINT64);
  mem.norm = memory<uint64_t>(arrays, "norm", NPY_UINT64);
  return mem;
}

static void set(Machine& machine, size_t address, int op, int error, int64_t steps, int64_t settle,
                bool fence, int64_t slots, const nb::dict& fields) {
  fpga::Prepared prepared{op, error, steps, settle, fence, slots, {}};
  for (auto [name, value] : fields)
    prepared.fields.*fpga::field(nb::cast<std::string>(name)) = nb::cast<int64_t>(value);
  machine.set(address, prepared);
}

void bind_fpga(nb::module_& m) {
  nb::class_<Machine>(
      m, "FpgaMachine",
      "Executes instructions on the model's memories; host/native/fpga/machine.hpp.")
      .def(
          "__init__",
          [](Machine* self, const nb::dict& arrays, nb::handle parabolas, int p, int a_bits,
             int b_bits, int sum_bits, size_t words, int64_t fetch, int64_t edge) {
            auto* table = as_array(parabolas, "parabolas", NPY_INT64, "int64 [3, 256]");
            if (PyArray_SIZE(table) != 3 * fpga::Functions::kSegments)
              throw Error("SchemaError", "parabolas", "int64 [3, 256]", type_text(parabolas));
            new (self)
                Machine(memories(arrays, p, a_bits, b_bits, sum_bits),
                        static_cast<const int64_t*>(PyArray_DATA(table)), words, fetch, edge);
          },
          nb::arg("arrays"), nb::arg("parabolas"), nb::arg("p"), nb::arg("a_bits"),
          nb::arg("b_bits"), nb::arg("sum_bits"), nb::arg("words"), nb::arg("fetch"),
          nb::arg("edge"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("set", &set, nb::arg("address"), nb::arg("op"), nb::arg("error"), nb::arg("steps"),
           nb::arg("settle"), nb::arg("fence"), nb::arg("slots"), nb::arg("fields"),
           "Prepares the instruction at an address.")
      .def(
          "run",
          [](Machine& self, int64_t pc, bool accumulate) {
            fpga::RunEnd end;
            {
              nb::gil_scoped_release release;
              end = self.run(pc, accumulate);
            }
            return std::make_tuple(end.error, end.pc, end.cycles, end.slots);
          },
          nb::arg("pc"), nb::arg("accumulate"), "Runs from pc: (error, pc, cycles, slots).");
}
