// SPDX-License-Identifier: MIT
// Names and helpers that every kernel of this folder shares.
//
// Cost: none; all of it is inlined. Limits: blocks of 32 to 1,024 threads, a multiple of 32.
// Thread-safety: each function says what its threads share. Header-free: compiles with NVRTC as
// it is, and with g++ behind `cpu/cuda_cpu.h`.
//
//   row block in shared memory:   row 0: v v v v v 0 0 0    width 5, stride 8
//                                 row 1: v v v v v 0 0 0    numbers behind the width are zero
//                                 ...                       wherever a dense product reads them
#ifndef COPAL_SHARED
#define COPAL_SHARED(name) extern __shared__ __align__(128) float name[]
#endif
#ifndef COPAL_DEVICE
#define COPAL_DEVICE static __device__ __forceinline__
#endif

namespace copal {

constexpr unsigned WARP = 0xffffffffu;

__host__ __device__ constexpr int pad4(int n) { return (n + 3) / 4 * 4; }

COPAL_DEVICE float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
COPAL_DEVICE void store4(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }

COPAL_DEVICE float not_a_number() { return __int_as_float(0x7fc00000); }
COPAL_DEVICE bool finite(float v) { return fabsf(v) <= 3.402823466e38f; }

// A phase has failed if its word holds the number of the launch, which the host counts up: nothing
// has to be cleared before a graph runs again.
struct Status {
  int* words;
  int launch;
  int slot;

  __device__ bool stopped() const {
    if (words[slot] != launch) return false;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) words[slot + 1] = launch;
    return true;
  }
  __device__ void fail() const { words[slot + 1] = launch; }
};

// The sum of each of N numbers over the lanes that differ in the bits MASK, MASK / 2, ..., LAST.
// The numbers are halved at each step, so a lane ends with N / lanes of them (at least one) in
// `v[0]` onwards; the result is the index that `v[0]` had.
template <int N, int MASK, int LAST>
COPAL_DEVICE int sum_and_scatter(float* v, int lane) {
  if constexpr (MASK < LAST || MASK == 0) {
    return 0;
  } else if constexpr (N > 1) {
    constexpr int HALF = N / 2;
    const bool upper = (lane & MASK) != 0;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
      const float kept = upper ? v[i + HALF] : v[i];
      const float sent = upper ? v[i] : v[i + HALF];
      v[i] = kept + __shfl_xor_sync(WARP, sent, MASK);
    }
    return (upper ? HALF : 0) + sum_and_scatter<HALF, MASK / 2, LAST>(v, lane);
  } else {
    v[0] += __shfl_xor_sync(WARP, v[0], MASK);
    return sum_and_scatter<1, MASK / 2, LAST>(v, lane);
  }
}

}  // namespace copal
