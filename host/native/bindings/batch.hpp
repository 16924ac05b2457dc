// SPDX-License-Identifier: MIT
// A sampled batch: one block of memory, and NumPy views of it that are made when asked for.
//
//   | column 0 | column 1 | ... | discount | ids | weights |   each part starts at a 64-byte line
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "../replay.hpp"
#include "columns.hpp"

class Batch {
 public:
  Batch(const copal::Schema& schema, size_t rows) : rows_(rows) {
    for (const copal::Column& c : schema) add(c.name, numpy_type(c.dtype), c.bytes, c.shape);
    columns_ = parts_.size();
    add("discount", NPY_FLOAT32, 4, {});
    add("weight", NPY_FLOAT32, 4, {});
    add("ids", NPY_UINT64, 8, {});
    allocate();
  }

  size_t rows() const { return rows_; }
  const copal::SampleTarget& target() const { return target_; }

  // Whether rows of `schema` fit; a batch of another buffer with the same columns does.
  bool fits(const copal::Schema& schema) const {
    if (schema.size() != columns_) return false;
    for (size_t i = 0; i < columns_; ++i) {
      const copal::Column& c = schema[i];
      const Part& p = parts_[i];
      if (p.name != c.name || p.type != numpy_type(c.dtype)) return false;
      if (p.dims != dims_of(c.shape)) return false;
    }
    return true;
  }

  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (size_t i = 0; i <= kWeight + columns_; ++i) names.push_back(parts_[i].name);
    return names;
  }
  bool contains(PyObject* key) const { return find(key) < parts_.size(); }
  nb::object get(PyObject* key) {
    const size_t i = find(key);
    if (i == parts_.size()) {
      std::string known;
      for (const std::string& name : keys()) known += (known.empty() ? "" : ", ") + name;
      throw copal::Error("SchemaError", PyUnicode_Check(key) ? text_of(key) : "batch",
                         "one of " + known, "an unknown column");
    }
    return view(i);
  }
  nb::object discounts() { return view(columns_ + kDiscount); }
  nb::object weights() { return view(columns_ + kWeight); }
  nb::object ids() { return view(columns_ + kIds); }

 private:
  enum Extra : size_t { kDiscount, kWeight, kIds };

  struct Part {
    std::string name;
    nb::object key;  // interned
    int type;
    std::vector<npy_intp> dims;
    size_t bytes, offset;
    nb::object view;
  };

  std::vector<npy_intp> dims_of(const std::vector<size_t>& shape) const {
    std::vector<npy_intp> dims{static_cast<npy_intp>(rows_)};
    dims.insert(dims.end(), shape.begin(), shape.end());
    return dims;
  }
  void add(const std::string& name, int type, size_t row_bytes, const std::vector<size_t>& shape) {
    if (row_bytes > (SIZE_MAX >> 2) / rows_) throw std::bad_alloc();
    PyObject* key = PyUnicode_InternFromString(name.c_str());
    const size_t at = parts_.empty() ? 0 : (parts_.back().offset + parts_.back().bytes + 63) / 64 * 64;
    parts_.push_back({name, nb::steal(key), type, dims_of(shape), row_bytes * rows_, at, {}});
  }
  void allocate() {
    void* memory = std::aligned_alloc(64, (parts_.back().offset + parts_.back().bytes + 63) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    owner_ = nb::capsule(memory, [](void* p) noexcept { std::free(p); });
    memory_ = static_cast<std::byte*>(memory);
    for (size_t i = 0; i < columns_; ++i) target_.column.push_back(memory_ + parts_[i].offset);
    target_.discount = reinterpret_cast<float*>(memory_ + parts_[columns_ + kDiscount].offset);
    target_.weight = reinterpret_cast<float*>(memory_ + parts_[columns_ + kWeight].offset);
    target_.id = reinterpret_cast<uint64_t*>(memory_ + parts_[columns_ + kIds].offset);
  }
  size_t find(PyObject* key) const {
    const size_t named = columns_ + kIds;  // ids are an attribute, not a column
    for (size_t i = 0; i < named; ++i) {
      if (parts_[i].key.ptr() == key) return i;
    }
    for (size_t i = 0; i < named && PyUnicode_Check(key); ++i) {
      if (PyUnicode_CompareWithASCIIString(key, parts_[i].name.c_str()) == 0) return i;
    }
    return parts_.size();
  }
  // Views refer to the memory and not to the batch, so there is no cycle to collect.
  nb::object view(size_t i) {
    Part& p = parts_[i];
    if (p.view.is_valid()) return p.view;
    PyObject* a = PyArray_New(&PyArray_Type, static_cast<int>(p.dims.size()), p.dims.data(), p.type,
                              nullptr, memory_ + p.offset, 0, NPY_ARRAY_CARRAY, nullptr);
    if (!a) throw nb::python_error();
    p.view = nb::steal(a);
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(a), nb::object(owner_).release().ptr()) < 0) {
      throw nb::python_error();
    }
    return p.view;
  }

  size_t rows_, columns_ = 0;
  std::vector<Part> parts_;
  nb::object owner_;
  std::byte* memory_ = nullptr;
  copal::SampleTarget target_;
};
