// SPDX-License-Identifier: MIT
// Columns of a replay buffer, and where each lies inside a packed row.
//
// Cost: O(columns) to build, O(columns) to find a name. Limits: at least one column, every
// dimension at least 1, a row below 2^31 bytes. Immutable once built, so any number of threads may
// read it.
//
//   row:  | 8-byte columns | 4-byte columns, discount, link | 2-byte | 1-byte | padding to 16 |
//
// Ordering by item size keeps every item aligned without gaps. A stride that is a multiple of 16
// lets a row of up to 80 bytes touch at most two cache lines wherever it starts.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace copal {

enum class Dtype : uint8_t { b8, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64 };

inline constexpr struct {
  const char* name;  // NumPy's name
  size_t bytes;
} kDtypes[] = {{"bool", 1},   {"int8", 1},    {"int16", 2},   {"int32", 4},
               {"int64", 8},  {"uint8", 1},   {"uint16", 2},  {"uint32", 4},
               {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}};

inline constexpr const char* dtype_name(Dtype d) { return kDtypes[static_cast<size_t>(d)].name; }
inline constexpr size_t dtype_bytes(Dtype d) { return kDtypes[static_cast<size_t>(d)].bytes; }
inline constexpr bool is_float(Dtype d) { return d >= Dtype::f16; }

struct Column {
  Column(std::string name, Dtype dtype, std::vector<size_t> shape)
      : name(std::move(name)), dtype(dtype), shape(std::move(shape)) {
    for (size_t d : this->shape) {
      if (d == 0 || d >= kMaxItems / items) {
        throw Error("SchemaError", this->name,
                    "dimensions of at least 1 and a row below 2^31 bytes",
                    "a dimension of " + std::to_string(d));
      }
      items *= d;
    }
    bytes = items * dtype_bytes(dtype);
  }

  std::string name;
  Dtype dtype;
  std::vector<size_t> shape;  // of one row, empty for a scalar
  size_t items = 1;           // values a row
  size_t bytes = 0;           // bytes a row

 private:
  static constexpr size_t kMaxItems = size_t{1} << 28;
};

class Schema {
 public:
  static constexpr size_t npos = ~size_t{0};

  explicit Schema(std::vector<Column> columns) : columns_(std::move(columns)) {
    if (columns_.empty()) throw Error("SchemaError", "columns", "at least one column", "none");
    size_t bytes = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (find(columns_[i].name) != i) {
        throw Error("SchemaError", columns_[i].name, "a column name used once", "it twice");
      }
      bytes += columns_[i].bytes;
    }
    if (bytes >= size_t{1} << 31) {
      throw Error("SchemaError", "columns", "a row below 2^31 bytes", std::to_string(bytes));
    }
  }

  size_t size() const { return columns_.size(); }
  const Column& operator[](size_t i) const { return columns_[i]; }
  const std::vector<Column>& columns() const { return columns_; }
  auto begin() const { return columns_.begin(); }
  auto end() const { return columns_.end(); }

  // Index of the column called `name`, npos without one.
  size_t find(const std::string& name) const {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].name == name) return i;
    }
    return npos;
  }

 private:
  std::vector<Column> columns_;
};

struct RowLayout {
  // Leaves out column `unstored` (npos: none); reserves a discount and a link where asked for.
  RowLayout(const Schema& schema, size_t unstored, bool with_discount, bool with_link)
      : offset(schema.size(), Schema::npos) {
    for (size_t width : {size_t{8}, size_t{4}, size_t{2}, size_t{1}}) {
      for (size_t i = 0; i < schema.size(); ++i) {
        if (i == unstored || dtype_bytes(schema[i].dtype) != width) continue;
        offset[i] = bytes;
        bytes += schema[i].bytes;
      }
      if (width != 4) continue;
      if (with_discount) discount = bytes, bytes += 4;
      if (with_link) link = bytes, bytes += 4;
    }
    stride = std::max<size_t>(16, (bytes + 15) / 16 * 16);
  }

  std::vector<size_t> offset;      // a column, in schema order; npos if it is not stored
  size_t discount = Schema::npos;  // float32, the gamma^k of the row
  size_t link = Schema::npos;  // uint32, distance to the id of the row with the next observation
  size_t bytes = 0;            // used
  size_t stride = 0;           // from one row to the next
};

}  // namespace copal
