// SPDX-License-Identifier: MIT
// UPDATE, NORM, BROADCAST and SCALAR: parameters, their gradient, and the scalars of K.
//
// Cost: O(words), vectorised. Limits: none beyond docs/hardware.md. Thread-safety: one model one
// thread.
//
//   g, m, s --Adam--> m, s, w --average--> t      w, t --rint(x * 2^e)--> A, or BIAS
#pragma once
#include <cstdint>
#include <vector>

#include "numbers.hpp"

namespace copal::fpga {

// Copies parameters as integers to A or BIAS; `values` are those before saturation to `bits`.
template <class T>
void copy_integers(T* out, const float* x, int64_t count, int64_t exponent, int bits, int sum_bits,
                   std::vector<int64_t>& values) {
  const double scale = std::ldexp(1.0, static_cast<int>(exponent));
  values.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[i] = to_integer(x[i], scale, sum_bits);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(saturate(values[i], bits));
}

inline void adam(const Memories& mem, const int32_t* g, const float* k, int64_t at, int64_t count,
                 double scale) {
  float *w = mem.w + at, *m = mem.m + at, *s = mem.s + at;
  const float beta1 = k[0], rest1 = k[1], beta2 = k[2], rest2 = k[3], alpha = k[4], eps = k[5];
  const float factor = k[8];
  for (int64_t i = 0; i < count; ++i) {
    const float gs = canonical(from_integer(g[i], scale) * factor);
    const float m1 = canonical(canonical(beta1 * canonical(m[i])) + canonical(rest1 * gs));
    const float square = canonical(rest2 * canonical(gs * gs));
    const float s1 = canonical(canonical(beta2 * canonical(s[i])) + square);
    const float root = canonical(canonical(std::sqrt(s1)) + eps);
    const float step = canonical(canonical(alpha * m1) / root);
    m[i] = m1;
    s[i] = s1;
    w[i] = canonical(canonical(w[i]) - step);
  }
}

inline void average(const Memories& mem, const float* k, int64_t at, int64_t count) {
  const float tau = k[6], rest = k[7];
  const float* w = mem.w + at;
  float* t = mem.t + at;
  for (int64_t i = 0; i < count; ++i)
    t[i] = canonical(canonical(rest * canonical(t[i])) + canonical(tau * canonical(w[i])));
}

inline void update(const Memories& mem, const Fields& f, std::vector<int64_t>& values) {
  const int64_t p = mem.p, at = f.p_base * p, count = (f.count + 1) * p;
  float k[16];
  for (int64_t i = 0; i < 16; ++i) k[i] = canonical(mem.k[f.set * 16 + i]);
  const int32_t* g = f.bias ? mem.gb + f.b_base * p : mem.g + at;
  if (f.adam) adam(mem, g, k, at, count, std::ldexp(1.0, static_cast<int>(-f.e_g)));
  if (f.average) average(mem, k, at, count);
  const auto copy = [&](const float* x, int64_t bias_at, int64_t a_at, int64_t e, int64_t entry) {
    if (f.bias) {
      copy_integers(mem.bias + bias_at * p, x + at, count, e, mem.sum_bits, mem.sum_bits, values);
    } else {
      copy_integers(mem.a + a_at * p, x + at, count, e, mem.a_bits, mem.sum_bits, values);
      note_range(mem.range, entry, values.data(), count, mem.a_bits);
    }
  };
  if (f.copy_w) copy(mem.w, f.b_base, f.aw_base, f.e_w, f.range_w);
  if (f.copy_t) copy(mem.t, f.bt_base, f.at_base, f.e_t, f.range_t);
}

inline void norm(const Memories& mem, const Fields& f) {
  const int32_t* g = (f.gb ? mem.gb : mem.g) + f.p_base * mem.p;
  uint64_t total = f.first ? 0 : *mem.norm;
  for (int64_t i = 0; i < (f.count + 1) * mem.p; ++i) {
    const int64_t q = saturate((int64_t{g[i]} + (1 << 14)) >> 15, 17);
    total += static_cast<uint64_t>(q * q);
  }
  total &= (uint64_t{1} << 56) - 1;
  *mem.norm = total;
  if (!f.last) return;
  const auto out = static_cast<uint32_t>(std::min<uint64_t>(total >> f.shift, 0x7fffffffu));
  for (int64_t j = 0; j < mem.p; ++j) mem.v[f.d_base * mem.p + j] = as_float(out);
}

inline void broadcast(const Memories& mem, const Fields& f) {
  const float* source = f.target ? mem.t : mem.w;
  const uint32_t bits = as_bits(source[f.p_base * mem.p + f.lane]);
  for (int64_t j = 0; j < (f.nt + 1) * mem.p; ++j) mem.v[f.d_base * mem.p + j] = as_float(bits);
}

inline void scalar(const Memories& mem, const Fields& f) {
  mem.k[f.index] = mem.v[f.x_base * mem.p];
}

}  // namespace copal::fpga
