// SPDX-License-Identifier: MIT
// Runs the steps of a Plan on one block of rows.
//
// Cost: the dense products' operations plus O(width * nb) a step. Limits: nb is 1, 16, 32 or 64.
// Thread-safety: a frame belongs to one thread; the plan and the networks are only read.
//
//   temporaries [one block]   kept [value][padded rows]   panels [layer input][padded rows]
#pragma once
#include <cstddef>
#include <cstring>

#include "elementwise.hpp"
#include "gemm.hpp"
#include "lowering.hpp"

namespace copal {

struct Frame {
  const Plan& plan;
  GemmKind gemm;
  const float* const* networks;  // in the order of the plan's networks
  float* temporary;
  float* kept = nullptr;
  float* panels = nullptr;
  size_t padded = 0;  // rows of `kept` and `panels`
  Block block{};

  const float* at(int id) const {
    const Value& v = plan.values[id];
    if (v.place == Place::kConstant) return plan.constants.data() + v.offset;
    if (v.place == Place::kKept) return kept + v.offset * padded + v.width * block.first;
    return temporary + v.offset;
  }
  float* to(int id) const { return const_cast<float*>(at(id)); }
  Operand operand(int id) const { return {at(id), plan.values[id].width}; }
};

namespace block_runner {

inline void dense(const Frame& f, const Step& s) {
  const float* net = f.networks[s.network];
  if (s.kind == OpKind::kDense) {
    gemm::forward(f.gemm, s.fan_out, s.fan_in, f.block.nb, net + s.weight,
                  s.bias >= 0 ? net + s.bias : nullptr, s.relu, f.at(s.in[0]), f.to(s.out));
  } else {
    gemm::grad_input(f.gemm, s.fan_in, s.fan_out, f.block.nb, net + s.weight, f.at(s.in[0]),
                     s.active >= 0 ? f.at(s.active) : nullptr, f.to(s.out));
  }
}

inline void concat(const Frame& f, const Step& s) {
  float* out = f.to(s.out);
  for (int in : s.in) {
    const size_t floats = f.plan.values[in].width * f.block.nb;
    std::memcpy(out, f.at(in), floats * sizeof(float));
    out += floats;
  }
}

inline void param(const Frame& f, const Step& s) {
  const float* from = f.networks[s.network] + s.offset;
  float* out = f.to(s.out);
  for (size_t j = 0; j < f.plan.values[s.out].width; ++j)
    for (size_t i = 0; i < f.block.nb; ++i) out[j * f.block.nb + i] = from[j];
}

inline void transpose(const Frame& f, const Step& s) {
#ifdef COPAL_OWN_GEMM
  avx512::transpose(f.at(s.in[0]), f.plan.values[s.in[0]].width, f.block.nb, f.block.first,
                    f.padded, f.panels + s.panels * f.padded);
#else
  (void)f, (void)s;
#endif
}

inline void step(const Frame& f, const Step& s) {
  const size_t nb = f.block.nb;
  auto in = [&](size_t i) { return f.operand(s.in[i]); };
  const size_t width = s.out >= 0 ? f.plan.values[s.out].width : 0;
  switch (s.kind) {
    case OpKind::kDense:
    case OpKind::kDenseGradInput:
      return dense(f, s);
    case OpKind::kTranspose:
      return transpose(f, s);
    case OpKind::kConst:
      std::memcpy(f.to(s.out), f.plan.constants.data() + s.offset, nb * sizeof(float));
      return;
    case OpKind::kParam:
      return param(f, s);
    case OpKind::kConcat:
      return concat(f, s);
    case OpKind::kSlice:
      std::memcpy(f.to(s.out), f.at(s.in[0]) + s.offset * nb, width * nb * sizeof(float));
      return;
    case OpKind::kWhere:
      return elementwise::where(in(0), in(1), in(2), width, nb, f.to(s.out));
    case OpKind::kGather:
      return elementwise::gather(in(0), in(1), nb, f.to(s.out));
    case OpKind::kScatter:
      return elementwise::scatter(in(0), in(1), width, nb, f.to(s.out));
    case OpKind::kRowMax:
      return elementwise::row_max(in(0), nb, f.to(s.out));
    case OpKind::kRowArgmax:
      return elementwise::row_argmax(in(0), nb, f.to(s.out));
    case OpKind::kRowSum:
      return elementwise::row_sum(in(0), nb, f.to(s.out));
    case OpKind::kToFloat:
      return elementwise::to_float(in(0), nb, f.to(s.out));
    default:
      elementwise::run(s.kind, in(0), s.in.size() > 1 ? in(1) : in(0), nb, f.to(s.out));
  }
}

}  // namespace block_runner

inline void run_block(const Frame& frame) {
  for (const Step& s : frame.plan.steps) block_runner::step(frame, s);
}

}  // namespace copal
