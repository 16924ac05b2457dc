// SPDX-License-Identifier: MIT
// Standard normal noise as a function of seed, stream, update, row and column: what
// `copal.program.noise` defines, in float32.
//
// Cost: 10 rounds of Philox for four columns of a row, in vectors over rows. Limits: widths to
// 2^18, rows to 2^32; relative error about 1e-6. Thread-safety: pure, there is no state.
//
//   counter (row, stream 2^16 + column / 4, update low, update high), key (seed low, seed high)
//     --Philox4x32-10 (Salmon et al. 2011)--> 4 words --Box-Muller, by pairs--> columns 4k ... 4k+3
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "segment.hpp"
#include "vector_math.hpp"

namespace copal {

// What all noise of one update has in common.
struct NoiseKey {
  uint64_t seed = 0, update = 0;
};

namespace noise {

inline constexpr uint32_t kMultiplier0 = 0xd2511f53, kMultiplier1 = 0xcd9e8d57;
inline constexpr uint32_t kWeyl0 = 0x9e3779b9, kWeyl1 = 0xbb67ae85;

struct Words {
  alignas(64) uint32_t word[4][kMaxBlock];
};

inline void philox(Words& x, uint64_t seed) {
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += kWeyl0, key1 += kWeyl1)
    for (size_t i = 0; i < kMaxBlock; ++i) {
      const uint64_t a = uint64_t{kMultiplier0} * x.word[0][i];
      const uint64_t b = uint64_t{kMultiplier1} * x.word[2][i];
      x.word[0][i] = static_cast<uint32_t>(b >> 32) ^ x.word[1][i] ^ key0;
      x.word[1][i] = static_cast<uint32_t>(b);
      x.word[2][i] = static_cast<uint32_t>(a >> 32) ^ x.word[3][i] ^ key1;
      x.word[3][i] = static_cast<uint32_t>(a);
    }
}

// Two normal numbers a row from two words.
inline void box_muller(const uint32_t* x, const uint32_t* y, float* first, float* second) {
  for (size_t i = 0; i < kMaxBlock; ++i) {
    const float u = static_cast<float>(static_cast<int32_t>((x[i] >> 8) + 1)) * 0x1p-24f;
    const float v = static_cast<float>(static_cast<int32_t>(y[i] >> 8)) * 0x1p-24f;
    const float radius = std::sqrt(-2.f * vector_math::log(u));
    const auto turn = vector_math::sine_cosine_of_turn(v);
    first[i] = radius * turn.cosine;
    second[i] = radius * turn.sine;
  }
}

}  // namespace noise

// Fills the block out [width][nb], nb at most 64, for the rows first_row ... first_row + nb - 1.
inline void fill_normal(const NoiseKey& key, size_t stream, size_t first_row, size_t width,
                        size_t nb, float* out) {
  noise::Words x;
  alignas(64) float columns[4][kMaxBlock];
  for (size_t j = 0; j < width; j += 4) {
    for (size_t i = 0; i < kMaxBlock; ++i) {
      x.word[0][i] = static_cast<uint32_t>(first_row + i);
      x.word[1][i] = static_cast<uint32_t>((stream << 16) + j / 4);
      x.word[2][i] = static_cast<uint32_t>(key.update);
      x.word[3][i] = static_cast<uint32_t>(key.update >> 32);
    }
    noise::philox(x, key.seed);
    noise::box_muller(x.word[0], x.word[1], columns[0], columns[1]);
    if (j + 2 < width) noise::box_muller(x.word[2], x.word[3], columns[2], columns[3]);
    for (size_t k = 0; k < 4 && j + k < width; ++k)
      for (size_t i = 0; i < nb; ++i) out[(j + k) * nb + i] = columns[k][i];
  }
}

}  // namespace copal
