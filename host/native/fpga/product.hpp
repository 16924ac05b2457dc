// SPDX-License-Identifier: MIT
// PRODUCT: sums of products of tiles, then bias, shift, ReLU, mask, ranges, and their ways out.
//
// Cost: the products, and a few operations a result. Limits: W + WB + log2(k) <= 50. Thread-safety:
// one Products one model.
//
//   A, B --pack--> panels --Gemm--> row i of tiles m: all lanes of all n --drain--> A B V G, MASK
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "gemm.hpp"
#include "numbers.hpp"

namespace copal::fpga {

// Packs the operand vectors of all steps: tile t, step k: column k mod P of tile
// base + t * stride + k / P * k_stride (by_column) or its row k mod P.
template <int64_t Size>
void pack(Panels<Size>& out, const int32_t* memory, int64_t p, int64_t base, int64_t stride,
          int64_t k_stride, int64_t tiles, int64_t steps, bool by_column) {
  out.resize(tiles * p, steps);
  const int64_t chunk = std::min(p, Size);
  for (int64_t t = 0; t < tiles; ++t)
    for (int64_t k = 0; k < steps; k += p) {
      const int32_t* tile = memory + (base + t * stride + k / p * k_stride) * p * p;
      const int64_t depth = std::min(p, steps - k);
      for (int64_t first = 0; first < p; first += chunk) {
        double* to = out.at(t * p + first, k);
        if (by_column) {
          for (int64_t i = 0; i < chunk; ++i)
            for (int64_t j = 0; j < depth; ++j) to[j * Size + i] = tile[(first + i) * p + j];
        } else {
          for (int64_t i = 0; i < depth; ++i)
            for (int64_t j = 0; j < chunk; ++j) to[i * Size + j] = tile[i * p + first + j];
        }
      }
    }
}

class Products {
 public:
  void run(const Memories& mem, const Fields& f, bool accumulate) {
    const int64_t p = mem.p, mt = f.mt + 1, nt = f.nt + 1, steps = f.kn + 1;
    pack(gemm_.a, mem.a, p, f.a_base, f.a_m, f.a_k, mt, steps, f.a_col != 0);
    pack(gemm_.b, mem.b, p, f.b_base, f.b_n, f.b_k, nt, steps, f.b_col != 0);
    gemm_.multiply(mt * p, nt * p, steps);
    values_.resize(static_cast<size_t>(nt * p));
    narrow_.resize(static_cast<size_t>(nt * p));
    for (int64_t m = 0; m < mt; ++m)
      for (int64_t i = 0; i < p; ++i) drain(mem, f, m, i, accumulate);
    if (!f.bgrad) return;
    for (int64_t row = 0; row < mt * p; ++row) {
      double total = 0;
      for (int64_t k = 0; k < steps; ++k) total += *gemm_.a.at(row, k);
      int32_t& out = mem.gb[f.bias_base * p + row];
      const int64_t old = accumulate ? out : 0;
      out = static_cast<int32_t>(saturate(saturate(whole(total), 32) + old, 32));
    }
  }

 private:
  // Row i of the tiles (m, 0), (m, 1), ...: contiguous in C.
  void drain(const Memories& mem, const Fields& f, int64_t m, int64_t i, bool accumulate) {
    const int64_t p = mem.p, width = (f.nt + 1) * p, row = m * p + i;
    const int spare = 64 - mem.sum_bits, shift = static_cast<int>(f.shift);
    const int64_t half = int64_t{1} << shift >> 1;
    const int64_t bias = f.use_bias ? mem.bias[f.bias_base * p + row] : 0;
    const double* c = gemm_.row(row);
    int64_t* values = values_.data();
    for (int64_t j = 0; j < width; ++j) values[j] = (whole(c[j]) + bias) << spare >> spare;
    if (f.relu) {
      for (int64_t n = 0; n <= f.nt; ++n) {
        uint8_t* mask = mem.mask + (f.mask_base + m * f.c_m + n * f.c_n + i) * p;
        for (int64_t j = 0; j < p; ++j) mask[j] = values[n * p + j] > 0;
      }
    }
    for (int64_t j = 0; j < width; ++j) values[j] = (values[j] + half) >> shift;
    if (f.relu)
      for (int64_t j = 0; j < width; ++j) values[j] = std::max<int64_t>(values[j], 0);
    if (f.use_mask) {
      for (int64_t n = 0; n <= f.nt; ++n) {
        const uint8_t* mask = mem.mask + (f.mask_base + m * f.c_m + n * f.c_n + i) * p;
        for (int64_t j = 0; j < p; ++j) values[n * p + j] = mask[j] ? values[n * p + j] : 0;
      }
    }
    const int operand = mem.operand_bits(f.to_a, f.to_b);
    const int64_t counted = f.n_tail ? f.nt * p + f.n_tail : width;
    note_range(mem.range, f.range, values, counted, operand ? operand : 32);
    const int64_t address = f.c_base + m * f.c_m + i * f.c_i;
    if (operand) saturate_row(width, operand);
    if (f.to_a) store(mem.a, f, address, p);
    if (f.to_b) store(mem.b, f, address, p);
    const bool kept = m < f.mt || !f.m_tail || i < f.m_tail;
    if (!(f.to_v && kept) && !f.to_g) return;
    saturate_row(width, 32);
    if (f.to_v && kept) store(mem.v, f, address, p);
    if (f.to_g) add(mem.g, f, address, p, accumulate);
  }

  void saturate_row(int64_t width, int bits) {
    const int64_t* values = values_.data();
    int32_t* narrow = narrow_.data();
    for (int64_t j = 0; j < width; ++j) narrow[j] = static_cast<int32_t>(saturate(values[j], bits));
  }

  template <class T>
  void store(T* memory, const Fields& f, int64_t address, int64_t p) const {
    for (int64_t n = 0; n <= f.nt; ++n)
      std::memcpy(memory + (address + n * f.c_n) * p, narrow_.data() + n * p,
                  static_cast<size_t>(p) * sizeof(int32_t));
  }

  void add(int32_t* memory, const Fields& f, int64_t address, int64_t p, bool accumulate) const {
    if (!accumulate) return store(memory, f, address, p);
    for (int64_t n = 0; n <= f.nt; ++n) {
      int32_t* out = memory + (address + n * f.c_n) * p;
      for (int64_t j = 0; j < p; ++j)
        out[j] = static_cast<int32_t>(saturate(int64_t{out[j]} + narrow_[n * p + j], 32));
    }
  }

  Gemm gemm_;
  std::vector<int64_t> values_;
  std::vector<int32_t> narrow_;
};

}  // namespace copal::fpga
