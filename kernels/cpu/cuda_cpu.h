// SPDX-License-Identifier: MIT
// The names of CUDA C++ that the kernels use, on the CPU: the same source, run by g++ for tests.
//
// Cost: see grid.h. Limits: not modelled are weak memory between blocks, partial warp masks, inline
// PTX, cooperative grids. Thread-safety: launches of one library exclude each other.
//
//   #include "cpu/cuda_cpu.h"      the kernels' source, unchanged
//   COPAL_EXPORT(kernel)           -> const char* kernel__cpu(grid, block, shared, seed, void**
//   args)
#pragma once
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "grid.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define COPAL_DEVICE [[maybe_unused]] static inline
#define COPAL_SHARED(name) float* name = reinterpret_cast<float*>(cuda_cpu::grid.shared())

#define threadIdx cuda_cpu::grid.thread
#define blockIdx cuda_cpu::grid.block
#define blockDim cuda_cpu::grid.threads
#define gridDim cuda_cpu::grid.blocks
#define __syncthreads() cuda_cpu::grid.block_barrier(__LINE__)
#define __syncwarp() cuda_cpu::grid.warp_barrier()

struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class T>
inline T __shfl_xor_sync(unsigned, T value, int mask) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = cuda_cpu::grid.exchange(bits, cuda_cpu::grid.lane() ^ mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
inline T __shfl_sync(unsigned, T value, int lane) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = cuda_cpu::grid.exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane)
    votes |= (__shfl_sync(0, predicate != 0 ? 1u : 0u, lane) & 1u) << lane;
  return votes;
}

inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }

inline float __int_as_float(int v) {
  float f;
  std::memcpy(&f, &v, sizeof f);
  return f;
}
inline int __float_as_int(float v) {
  int i;
  std::memcpy(&i, &v, sizeof i);
  return i;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline void sincospif(float v, float* sine, float* cosine) {
  const double angle = 3.14159265358979323846 * static_cast<double>(v);
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}

namespace cuda_cpu {

template <class... A, std::size_t... I>
const char* launch(void (*kernel)(A...), Index blocks, Index threads, std::size_t shared,
                   unsigned seed, void** arguments, std::index_sequence<I...>) {
  auto one = [&] { kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...); };
  const std::lock_guard<std::mutex> lock(launching);
  return grid.run(blocks, threads, shared, seed, one);
}

template <class... A>
const char* launch(void (*kernel)(A...), Index blocks, Index threads, std::size_t shared,
                   unsigned seed, void** arguments) {
  return launch(kernel, blocks, threads, shared, seed, arguments, std::index_sequence_for<A...>{});
}

}  // namespace cuda_cpu

#define COPAL_EXPORT(kernel)                                                                     \
  extern "C" __attribute__((visibility("default"))) const char* kernel##__cpu(                   \
      unsigned blocks_x, unsigned blocks_y, unsigned threads, std::size_t shared, unsigned seed, \
      void** arguments) {                                                                        \
    return cuda_cpu::launch(&kernel, {blocks_x, blocks_y, 1}, {threads, 1, 1}, shared, seed,     \
                            arguments);                                                          \
  }
