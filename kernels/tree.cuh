// SPDX-License-Identifier: MIT
// Prioritized replay: a 32-ary tree of sums and maxima, drawn from and repaired by warps.
//
// Cost: a draw or an update is one 128-byte line a level. Limits: up to 2^31 - 1 rows; leaves in
// [0, 2^96]. Parents are recomputed from their children, never patched, in fixed order: equal
// updates give equal bits. Thread-safety: draws of many blocks at a time; `set_leaves` is one
// block alone.
//
//   tree    [ leaves: groups of 32 | sums of groups, in groups of 32 | ... | one group ]
//   maxima  [                      | maxima of groups               | ... | one group ]
//           LEVEL_AT: where each level begins, in both; the maxima of the leaves are the leaves
namespace copal {

struct Picked {
  int child;
  float value;
};

// One warp: the child whose share of the mass holds `mass`, which becomes what lies within it.
COPAL_DEVICE Picked pick32(const float* group, double& mass, bool scale) {
  const int lane = threadIdx.x % 32;
  const float value = group[lane];
  double prefix = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double before = __shfl_sync(WARP, prefix, lane >= step ? lane - step : lane);
    if (lane >= step) prefix += before;
  }
  if (scale) mass *= __shfl_sync(WARP, prefix, 31);
  // Only children above zero count, however prefixes and mass were rounded.
  const unsigned positive = __ballot_sync(WARP, value > 0.f);
  const unsigned above = __ballot_sync(WARP, prefix > mass) & positive;
  const int child = above ? __ffs((int)above) - 1 : positive ? 31 - __clz((int)positive) : 0;
  mass -= __shfl_sync(WARP, prefix - (double)value, child);
  return {child, __shfl_sync(WARP, value, child)};
}

// Draw `i` of the launch that `counter` numbers; a number in [0, 1) with 53 bits.
COPAL_DEVICE double uniform53(int i, const unsigned* counter, const unsigned* seed) {
  const Words w = philox({{(unsigned)i, 0xffffffffu, counter[0], counter[1]}}, seed[0], seed[1]);
  const unsigned long long bits = ((unsigned long long)w.v[0] << 32 | w.v[1]) >> 11;
  return (double)bits * 1.1102230246251565e-16;
}

template <int LEVELS>
COPAL_DEVICE Picked descend(const float* tree, const int* level_at, double mass) {
  int node = 0;
  Picked found{0, 0.f};
#pragma unroll
  for (int level = LEVELS - 1; level >= 0; --level) {
    found = pick32(tree + level_at[level] + 32 * node, mass, level == LEVELS - 1);
    node = 32 * node + found.child;
  }
  return {node, found.value};
}

// Sum and maximum of a group, known to all lanes.
COPAL_DEVICE void repair(const float* sums, const float* maxima, float* sum, float* maximum) {
  const int lane = threadIdx.x % 32;
  float s = sums[lane], m = maxima[lane];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    s += __shfl_xor_sync(WARP, s, mask);
    m = fmaxf(m, __shfl_xor_sync(WARP, m, mask));
  }
  if (lane == 0) {
    *sum = s;
    *maximum = m;
  }
}

// The largest leaf; every thread of the calling warp gets it.
template <int LEVELS>
COPAL_DEVICE float largest(const float* tree, const float* maxima, const int* level_at) {
  const float* top = (LEVELS == 1 ? tree : maxima) + level_at[LEVELS - 1];
  float m = top[threadIdx.x % 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) m = fmaxf(m, __shfl_xor_sync(WARP, m, mask));
  return m;
}

// Whether a later entry of the batch has the same slot: of equal slots the last one wins.
COPAL_DEVICE bool overruled(const int* slots, int i, int n) {
  const int lane = threadIdx.x % 32;
  for (int from = i + 1; from < n; from += 32) {
    const bool same = from + lane < n && slots[from + lane] == slots[i];
    if (__ballot_sync(WARP, same)) return true;
  }
  return false;
}

enum Mode : int { TD_ERROR = 0, RAW = 1, LARGEST = 2 };

// Sets leaves and repairs what lies above them. A value that is no priority changes nothing and
// sets `bad`; until the host has cleared that word nothing is changed. `values` is not read for
// LARGEST: the largest leaf, or `fresh` where all are zero.
template <int LEVELS, int THREADS>
COPAL_DEVICE void set_leaves(float* tree, float* maxima, const int* level_at, const int* slots,
                             const float* values, int n, int mode, float alpha, float eps,
                             float fresh, int* bad) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float top = largest<LEVELS>(tree, maxima, level_at);
  for (int i = threadIdx.x; mode != LARGEST && i < n; i += THREADS)
    if (!finite(values[i]) || (mode == RAW && values[i] < 0.f)) *bad = 1;
  __syncthreads();
  if (*bad) return;
  for (int i = warp; i < n; i += THREADS / 32) {
    if (overruled(slots, i, n)) continue;
    float leaf = top > 0.f ? top : fresh;
    if (mode == RAW) leaf = values[i];
    if (mode == TD_ERROR) leaf = alpha == 0.f ? 1.f : powf(fabsf(values[i]) + eps, alpha);
    if (lane == 0) tree[slots[i]] = leaf;
  }
  __syncthreads();
  int width = 32;
#pragma unroll
  for (int level = 1; level < LEVELS; ++level, width *= 32) {
    for (int i = warp; i < n; i += THREADS / 32) {
      const int group = slots[i] / width, from = level_at[level - 1] + 32 * group;
      const float* below = level == 1 ? tree : maxima;
      repair(tree + from, below + from, tree + level_at[level] + group,
             maxima + level_at[level] + group);
    }
    __syncthreads();
  }
}

// Importance weights, one block: (p / least p)^-beta, at most 1.
template <int THREADS>
COPAL_DEVICE void weights(const float* priorities, int n, float beta, float* out, float* shared) {
  float least = 3.402823466e38f;
  for (int i = threadIdx.x; i < n; i += THREADS) least = fminf(least, priorities[i]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) least = fminf(least, __shfl_xor_sync(WARP, least, mask));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = least;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) least = fminf(least, shared[w]);
  for (int i = threadIdx.x; i < n; i += THREADS) out[i] = powf(priorities[i] / least, -beta);
}

}  // namespace copal
