// SPDX-License-Identifier: MIT
// A Replay with what its Python calls look up each time: names, readers, layouts of batches.
//
// Cost: one comparison for the keywords of the call site before, and for the batch size before.
// Limits: those of Replay. Threads: what is remembered here is guarded by the GIL.
//
//   add(obs=a, reward=b) -> places {0, 2}      sample(256) -> layout of 256 rows
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../replay.hpp"
#include "batch.hpp"
#include "columns.hpp"

class BoundReplay : public copal::Replay {
 public:
  BoundReplay(copal::Schema schema, const copal::ReplayConfig& config)
      : Replay(std::move(schema), config) {
    for (const copal::Column& c : this->schema()) {
      readers.emplace_back(c);
      names.push_back(nb::steal(PyUnicode_InternFromString(c.name.c_str())));
    }
    names.push_back(nb::steal(PyUnicode_InternFromString("stream")));
    names.push_back(nb::steal(PyUnicode_InternFromString("priority")));
  }

  size_t stream_place() const { return readers.size(); }
  size_t priority_place() const { return readers.size() + 1; }

  // Place of each keyword: a column, the stream or the priority. A call site passes the same tuple
  // every time, so the last one is remembered.
  std::shared_ptr<const std::vector<size_t>> places(PyObject* keywords) {
    if (keywords && keywords == last_keywords_.ptr()) return places_;
    auto places = std::make_shared<std::vector<size_t>>();
    std::vector<bool> given(names.size());
    const Py_ssize_t n = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t k = 0; k < n; ++k) {
      places->push_back(place(PyTuple_GET_ITEM(keywords, k)));
      given[places->back()] = true;
    }
    for (size_t i = 0; i < readers.size(); ++i) {
      if (given[i]) continue;
      throw copal::Error("SchemaError", schema()[i].name, "a value for every column", "none",
                         "pass `" + schema()[i].name + "=`");
    }
    if (keywords) last_keywords_ = nb::borrow(keywords), places_ = places;
    return places;
  }

  // Layout of a batch; that of the last size is remembered.
  const std::shared_ptr<const BatchLayout>& layout(size_t rows) {
    if (!layout_ || layout_->rows != rows) layout_ = std::make_shared<BatchLayout>(schema(), rows);
    return layout_;
  }

  std::vector<ColumnReader> readers;
  std::vector<nb::object> names;  // of the columns, then `stream` and `priority`

 private:
  size_t place(PyObject* name) const {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].ptr() == name) return i;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (PyUnicode_Compare(names[i].ptr(), name) == 0) return i;
    }
    nb::list known;
    std::string all;
    for (size_t i = 0; i < readers.size(); ++i) {
      known.append(names[i]);
      all += (i ? ", " : "") + schema()[i].name;
    }
    nb::object near = nb::module_::import_("difflib").attr("get_close_matches")(
        nb::borrow(name), known, nb::arg("n") = 1, nb::arg("cutoff") = 0.5);
    std::string hint = "pass only columns of the schema, `stream` and `priority`";
    if (nb::len(near)) hint = "did you mean `" + text_of(nb::object(near[0]).ptr()) + "`?";
    throw copal::Error("SchemaError", text_of(name), "one of " + all, "an unknown column", hint);
  }

  nb::object last_keywords_;
  std::shared_ptr<const std::vector<size_t>> places_;
  std::shared_ptr<const BatchLayout> layout_;
};
