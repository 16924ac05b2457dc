// SPDX-License-Identifier: MIT
// What the model of the FPGA engine works on: its memories, and an instruction's fields.
//
// Cost: plain data. Limits: those of docs/hardware.md; addresses have been checked before.
// Thread-safety: none, one model one thread.
//
//   word n of a memory: lanes n * P .. n * P + P - 1      A, B: row i of tile t is word t * P + i
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "../errors.hpp"

namespace copal::fpga {

enum Op { kEnd, kProduct, kVector, kQuant, kUpdate, kNorm, kBroadcast, kScalar };

enum ErrorCode { kNone = 0, kAddress = 3, kNotFinite = 5 };

struct Memories {
  int64_t p = 0;
  int a_bits = 0, b_bits = 0, sum_bits = 0;
  float *v = nullptr, *w = nullptr, *t = nullptr, *m = nullptr, *s = nullptr, *k = nullptr;
  int32_t *g = nullptr, *gb = nullptr, *a = nullptr, *b = nullptr;
  int64_t* bias = nullptr;
  uint8_t* mask = nullptr;
  uint64_t *range = nullptr, *norm = nullptr;

  // Bits of what goes to A, B or both: those of the narrower one. 0: to neither.
  int operand_bits(bool to_a, bool to_b) const { return to_a ? a_bits : to_b ? b_bits : 0; }
};

// Fields by the names of copal.fpga.isa; those that an instruction does not have are 0.
struct Fields {
  int64_t mt = 0, nt = 0, kn = 0;
  int64_t a_base = 0, a_m = 0, a_k = 0, a_col = 0, b_base = 0, b_n = 0, b_k = 0, b_col = 0;
  int64_t c_base = 0, c_m = 0, c_n = 0, c_i = 0, mask_base = 0, bias_base = 0, use_bias = 0;
  int64_t shift = 0, to_a = 0, to_b = 0, to_v = 0, to_g = 0, relu = 0, use_mask = 0, bgrad = 0;
  int64_t range = 0, m_tail = 0, n_tail = 0;
  int64_t vop = 0, cols = 0, d_base = 0, d_c = 0, x_base = 0, x_c = 0, y_base = 0, y_c = 0;
  int64_t imm = 0, exponent = 0, x_imm = 0, y_imm = 0, x_abs = 0, x_neg = 0, y_abs = 0, y_neg = 0;
  int64_t pred = 0, count = 0, p_base = 0, adam = 0, average = 0, bias = 0, bt_base = 0;
  int64_t copy_w = 0, copy_t = 0, aw_base = 0, at_base = 0, e_g = 0, e_w = 0, e_t = 0, set = 0;
  int64_t range_w = 0, range_t = 0, gb = 0, first = 0, last = 0, lane = 0, target = 0, index = 0;
};

using Member = int64_t Fields::*;

// Throws ProgramError if no instruction has a field of that name.
inline Member field(const std::string& name) {
  using F = Fields;
  static constexpr std::pair<const char*, Member> kNames[] = {
      {"mt", &F::mt},
      {"nt", &F::nt},
      {"kn", &F::kn},
      {"a_base", &F::a_base},
      {"a_m", &F::a_m},
      {"a_k", &F::a_k},
      {"a_col", &F::a_col},
      {"b_base", &F::b_base},
      {"b_n", &F::b_n},
      {"b_k", &F::b_k},
      {"b_col", &F::b_col},
      {"c_base", &F::c_base},
      {"c_m", &F::c_m},
      {"c_n", &F::c_n},
      {"c_i", &F::c_i},
      {"mask_base", &F::mask_base},
      {"bias_base", &F::bias_base},
      {"use_bias", &F::use_bias},
      {"shift", &F::shift},
      {"to_a", &F::to_a},
      {"to_b", &F::to_b},
      {"to_v", &F::to_v},
      {"to_g", &F::to_g},
      {"relu", &F::relu},
      {"use_mask", &F::use_mask},
      {"bgrad", &F::bgrad},
      {"range", &F::range},
      {"m_tail", &F::m_tail},
      {"n_tail", &F::n_tail},
      {"vop", &F::vop},
      {"cols", &F::cols},
      {"d_base", &F::d_base},
      {"d_c", &F::d_c},
      {"x_base", &F::x_base},
      {"x_c", &F::x_c},
      {"y_base", &F::y_base},
      {"y_c", &F::y_c},
      {"imm", &F::imm},
      {"exponent", &F::exponent},
      {"x_imm", &F::x_imm},
      {"y_imm", &F::y_imm},
      {"x_abs", &F::x_abs},
      {"x_neg", &F::x_neg},
      {"y_abs", &F::y_abs},
      {"y_neg", &F::y_neg},
      {"pred", &F::pred},
      {"count", &F::count},
      {"p_base", &F::p_base},
      {"adam", &F::adam},
      {"average", &F::average},
      {"bias", &F::bias},
      {"b_base", &F::b_base},
      {"bt_base", &F::bt_base},
      {"copy_w", &F::copy_w},
      {"copy_t", &F::copy_t},
      {"aw_base", &F::aw_base},
      {"at_base", &F::at_base},
      {"e_g", &F::e_g},
      {"e_w", &F::e_w},
      {"e_t", &F::e_t},
      {"set", &F::set},
      {"range_w", &F::range_w},
      {"range_t", &F::range_t},
      {"gb", &F::gb},
      {"first", &F::first},
      {"last", &F::last},
      {"lane", &F::lane},
      {"target", &F::target},
      {"index", &F::index},
  };
  for (const auto& [known, member] : kNames)
    if (name == known) return member;
  throw Error("ProgramError", name, "a field of an instruction", "an unknown one");
}

}  // namespace copal::fpga
