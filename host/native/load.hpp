// SPDX-License-Identifier: MIT
// Brings rows of a batch column, of any dtype, into a feature-major block.
//
// Cost: O(rows * width). Limits: an index beyond 32 bits becomes the nearest that has them, which
// no network has; float16 is not taken. Thread-safety: pure.
//
//   column, row-major [rows][width]  -->  block [width][nb], the last real row repeated up to nb
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "gemm.hpp"
#include "program.hpp"
#include "schema.hpp"

namespace copal {

struct ColumnView {
  const std::byte* data = nullptr;  // row-major, rows behind one another; nullptr: noise
  Dtype dtype = Dtype::f32;
  size_t stream = 0;  // of the noise
};

// Whether a buffer can be loaded from a column of `dtype`.
inline bool loadable(const Buffer& b, Dtype dtype) {
  return dtype != Dtype::f16 && !(b.is_int && is_float(dtype));
}

// Throws SchemaError if it cannot.
inline void check_loadable(const Buffer& b, Dtype dtype) {
  if (!loadable(b, dtype))
    throw Error("SchemaError", b.name,
                b.is_int ? "an integer column" : "a column other than float16", dtype_name(dtype),
                ".astype(...) converts");
}

namespace loading {

// x as To; an integer that To lacks becomes To's nearest one.
template <class To, class From>
To narrowed(From x) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_greater(x, Limits::max())) return Limits::max();
    if (std::cmp_less(x, Limits::min())) return Limits::min();
  }
  return static_cast<To>(x);
}

template <class From, class To>
void convert(const std::byte* column, size_t rows, size_t width, size_t nb, float* out) {
  for (size_t i = 0; i < nb; ++i) {
    const std::byte* row = column + (i < rows ? i : rows - 1) * width * sizeof(From);
    for (size_t j = 0; j < width; ++j) {
      From x;
      std::memcpy(&x, row + j * sizeof(From), sizeof x);
      const To y = narrowed<To>(x);
      std::memcpy(out + j * nb + i, &y, sizeof y);
    }
  }
}

inline void load_floats(const float* column, size_t rows, size_t width, size_t nb, float* out) {
  if (nb == 1) {
    std::memcpy(out, column, width * sizeof(float));
    return;
  }
#ifdef COPAL_OWN_GEMM
  if (width > 1) return avx512::load_rows(column, rows, width, nb, out);
#endif
  if (width > 1)
    return convert<float, float>(reinterpret_cast<const std::byte*>(column), rows, width, nb, out);
  std::memcpy(out, column, rows * sizeof(float));
  for (size_t i = rows; i < nb; ++i) out[i] = out[rows - 1];
}

template <class To>
void load_as(Dtype dtype, const std::byte* column, size_t rows, size_t width, size_t nb,
             float* out) {
  switch (dtype) {
    case Dtype::b8:
    case Dtype::u8:
      return convert<uint8_t, To>(column, rows, width, nb, out);
    case Dtype::i8:
      return convert<int8_t, To>(column, rows, width, nb, out);
    case Dtype::i16:
      return convert<int16_t, To>(column, rows, width, nb, out);
    case Dtype::u16:
      return convert<uint16_t, To>(column, rows, width, nb, out);
    case Dtype::i32:
      return convert<int32_t, To>(column, rows, width, nb, out);
    case Dtype::u32:
      return convert<uint32_t, To>(column, rows, width, nb, out);
    case Dtype::i64:
      return convert<int64_t, To>(column, rows, width, nb, out);
    case Dtype::u64:
      return convert<uint64_t, To>(column, rows, width, nb, out);
    case Dtype::f64:
      return convert<double, To>(column, rows, width, nb, out);
    case Dtype::f32:
      return convert<float, To>(column, rows, width, nb, out);
    case Dtype::f16:
      return;
  }
}

}  // namespace loading

// Loads rows first ... first + rows of the column; `check_loadable` has passed.
inline void load_block(const Buffer& b, const ColumnView& column, size_t first, size_t rows,
                       size_t nb, float* out) {
  const std::byte* data = column.data + first * b.width * dtype_bytes(column.dtype);
  if (b.is_int) return loading::load_as<int32_t>(column.dtype, data, rows, b.width, nb, out);
  if (column.dtype == Dtype::f32)
    return loading::load_floats(reinterpret_cast<const float*>(data), rows, b.width, nb, out);
  loading::load_as<float>(column.dtype, data, rows, b.width, nb, out);
}

}  // namespace copal
