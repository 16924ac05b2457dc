// SPDX-License-Identifier: MIT
// The batch of a learner loop: where the replay writes what the learner reads.
//
// Cost: memory for one batch, allocated once. Limits: the replay is seen through its schema.
// Thread-safety: that of its owner.
//
//   replay's column | discount | weight | id  -->  views, in the order of the learner's inputs
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "learner.hpp"
#include "schema.hpp"

namespace copal {

// `Target` is the replay's SampleTarget.
template <class Target>
struct LoopBatch {
  Target target;
  std::vector<ColumnView> views;
  Aligned<float> td;

  // Throws SchemaError if the schema lacks a column that the learner reads.
  LoopBatch(const Learner& learner, const Schema& schema)
      : td(learner.batch()), ids_(learner.batch()), weights_(learner.batch()) {
    target.column.resize(schema.size(), nullptr);
    target.id = ids_.data();
    target.weight = weights_.data();
    for (const Buffer& b : learner.inputs()) connect(b, schema, learner.batch());
  }
  LoopBatch(const LoopBatch&) = delete;
  LoopBatch& operator=(const LoopBatch&) = delete;

  const uint64_t* ids() const { return ids_.data(); }

 private:
  void connect(const Buffer& b, const Schema& schema, size_t n) {
    if (b.name == "weight") {
      views.push_back({reinterpret_cast<const std::byte*>(weights_.data()), Dtype::f32});
      return;
    }
    const size_t i = schema.find(b.name);
    if (b.name == "discount" && i == Schema::npos) {
      discounts_ = Aligned<float>(n);
      target.discount = discounts_.data();
      views.push_back({reinterpret_cast<const std::byte*>(discounts_.data()), Dtype::f32});
      return;
    }
    if (i == Schema::npos && b.is_noise) {
      views.push_back({});  // the learner makes it
      return;
    }
    if (i == Schema::npos)
      throw Error("SchemaError", b.name, "a column of the replay", "none of that name");
    const Column& column = schema[i];
    check_loadable(b, column.dtype);
    if (column.items != b.width)
      throw Error("SchemaError", b.name, std::to_string(b.width) + " values a row",
                  std::to_string(column.items));
    columns_.emplace_back(n * column.bytes);
    target.column[i] = columns_.back().data();
    views.push_back({columns_.back().data(), column.dtype});
  }

  std::vector<Aligned<std::byte>> columns_;
  Aligned<uint64_t> ids_;
  Aligned<float> weights_, discounts_;
};

}  // namespace copal
