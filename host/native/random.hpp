// SPDX-License-Identifier: MIT
// Counter-based random numbers: value i of a seed is a function of both, so a block of them
// vectorises, threads need only share a counter, and the whole state is that counter.
//
// Cost: O(1) a number. Limits: 2^64 numbers a seed, 53 random bits in a double. Stateless.
//
//   counter --(* golden ratio, + key of the seed)--> 64-bit finaliser --> [0, 1)
#pragma once
#include <cstddef>
#include <cstdint>

namespace copal {

// David Stafford's finaliser "Mix13": every input bit reaches every output bit.
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class CounterRandom {
 public:
  explicit CounterRandom(uint64_t seed) : key_(mix(seed + 0x9e3779b97f4a7c15u)) {}

  uint64_t bits(uint64_t counter) const { return mix(key_ + counter * 0x9e3779b97f4a7c15u); }

  // n numbers of [0, 1) from `counter` on.
  void uniform(uint64_t counter, size_t n, double* out) const {
    for (size_t i = 0; i < n; ++i) {
      // The detour over a signed integer is what AVX2 and AVX-512DQ can convert.
      out[i] = static_cast<double>(static_cast<int64_t>(bits(counter + i) >> 11)) * 0x1p-53;
    }
  }

 private:
  uint64_t key_;
};

}  // namespace copal
