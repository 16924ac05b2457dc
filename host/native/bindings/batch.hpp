// SPDX-License-Identifier: MIT
// A sampled batch: one block of memory, and NumPy views of it that are made when asked for.
//
// Cost: one allocation a batch, O(columns) to find a name. Limits: those of the schema. Threads:
// views are made under the GIL; `target` is filled without it, by one thread at a time.
//
//   | column 0 | column 1 | ... | discount | ids | weights |   each part starts at a 64-byte line
#pragma once
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../replay.hpp"
#include "columns.hpp"

// What all batches of one buffer and size share.
struct BatchLayout {
  struct Part {
    std::string name;
    nb::object key;  // interned
    int type;
    std::vector<npy_intp> dims;
    size_t offset;
  };

  BatchLayout(const copal::Schema& schema, size_t rows) : rows(rows), columns(schema.size()) {
    for (const copal::Column& c : schema) add(c.name, numpy_type(c.dtype), c.bytes, c.shape);
    add("discount", NPY_FLOAT32, 4, {});
    add("weight", NPY_FLOAT32, 4, {});
    add("ids", NPY_UINT64, 8, {});
  }

  size_t discount() const { return columns; }
  size_t weight() const { return columns + 1; }
  size_t ids() const { return columns + 2; }
  size_t named() const { return columns + 2; }  // ids are an attribute, not a column

  // Part of a column, `parts.size()` if there is none.
  size_t find(PyObject* key) const {
    for (size_t i = 0; i < named(); ++i) {
      if (parts[i].key.ptr() == key) return i;
    }
    for (size_t i = 0; i < named() && PyUnicode_Check(key); ++i) {
      if (PyUnicode_Compare(key, parts[i].key.ptr()) == 0) return i;
    }
    // The attribute's name, for who expects it among the columns.
    if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "weights") == 0) {
      return weight();
    }
    return parts.size();
  }

  [[noreturn]] static void throw_too_large(size_t rows) {
    throw copal::Error("ConfigError", "batch_size", "a batch that fits into memory",
                       std::to_string(rows) + " rows");
  }

  bool operator==(const BatchLayout& o) const {
    if (parts.size() != o.parts.size()) return false;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part &a = parts[i], &b = o.parts[i];
      if (a.name != b.name || a.type != b.type || a.dims != b.dims) return false;
    }
    return true;
  }

  size_t rows, columns, bytes = 0;
  std::vector<Part> parts;

 private:
  void add(const std::string& name, int type, size_t row_bytes, const std::vector<size_t>& shape) {
    if (row_bytes > (SIZE_MAX >> 4) / rows) throw_too_large(rows);
    std::vector<npy_intp> dims{static_cast<npy_intp>(rows)};
    dims.insert(dims.end(), shape.begin(), shape.end());
    parts.push_back({name, nb::steal(PyUnicode_InternFromString(name.c_str())), type, dims, bytes});
    bytes += (row_bytes * rows + 63) / 64 * 64;
  }
};

class Batch {
 public:
  explicit Batch(std::shared_ptr<const BatchLayout> layout)
      : layout_(std::move(layout)), views_(layout_->parts.size()) {
    memory_ = static_cast<std::byte*>(std::aligned_alloc(64, layout_->bytes));
    if (!memory_) BatchLayout::throw_too_large(layout_->rows);
    owner_ = nb::capsule(memory_, [](void* p) noexcept { std::free(p); });
    target_.column.resize(layout_->columns);
    for (size_t i = 0; i < layout_->columns; ++i) target_.column[i] = part(i);
    target_.discount = reinterpret_cast<float*>(part(layout_->discount()));
    target_.weight = reinterpret_cast<float*>(part(layout_->weight()));
    target_.id = reinterpret_cast<uint64_t*>(part(layout_->ids()));
  }

  size_t rows() const { return layout_->rows; }
  const copal::SampleTarget& target() const { return target_; }
  bool fits(const std::shared_ptr<const BatchLayout>& layout) const {
    return layout == layout_ || *layout == *layout_;
  }

  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < layout_->named(); ++i) names.push_back(layout_->parts[i].name);
    return names;
  }
  // Rows, and name, shape and dtype of each column.
  std::string text() const {
    std::string s = "Batch(" + std::to_string(rows()) + (rows() == 1 ? " row: " : " rows: ");
    for (size_t i = 0; i < layout_->named(); ++i) {
      const BatchLayout::Part& p = layout_->parts[i];
      nb::object descr = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(p.type)));
      s += (i ? ", " : "") + p.name + " " +
           shape_text(p.dims.data(), static_cast<int>(p.dims.size())) + " " +
           text_of(nb::object(descr.attr("name")).ptr());
    }
    return s + ")";
  }
  bool contains(PyObject* key) const { return layout_->find(key) < layout_->parts.size(); }
  nb::object get(PyObject* key) {
    const size_t i = layout_->find(key);
    if (i < views_.size()) [[likely]]
      return view(i);
    std::string known;
    for (const std::string& name : keys()) known += (known.empty() ? "" : ", ") + name;
    throw copal::Error("SchemaError", PyUnicode_Check(key) ? text_of(key) : "batch",
                       "one of " + known, "an unknown column");
  }
  nb::object weights() { return view(layout_->weight()); }
  nb::object ids() { return view(layout_->ids()); }

 private:
  std::byte* part(size_t i) const { return memory_ + layout_->parts[i].offset; }

  // Views refer to the memory and not to the batch, so there is no cycle to collect.
  nb::object view(size_t i) {
    if (views_[i].is_valid()) return views_[i];
    const BatchLayout::Part& p = layout_->parts[i];
    PyObject* a = PyArray_New(&PyArray_Type, static_cast<int>(p.dims.size()),
                              const_cast<npy_intp*>(p.dims.data()), p.type, nullptr, part(i), 0,
                              NPY_ARRAY_CARRAY, nullptr);
    if (!a) throw nb::python_error();
    nb::object made = nb::steal(a);
    auto* array = reinterpret_cast<PyArrayObject*>(a);
    if (PyArray_SetBaseObject(array, nb::object(owner_).release().ptr()) < 0)
      throw nb::python_error();
    return views_[i] = std::move(made);
  }

  std::shared_ptr<const BatchLayout> layout_;
  std::vector<nb::object> views_;
  nb::object owner_;
  std::byte* memory_;
  copal::SampleTarget target_;
};
