// SPDX-License-Identifier: MIT
// Dense layers on a block of rows: outputs, and the gradient of their inputs.
//
// Cost: ROWS * IN * OUT multiply-adds; each weight is read ROWS / TILE times, 128 bytes a warp and
// instruction. Limits: SLICES is a power of two, at most the number of blocks of four along the
// sum. Thread-safety: called by all threads of a block; reads `x`, writes `out`, holds no barrier.
//
//   weights, [IN][OUT], both padded to 4      a thread: 4 outputs x TILE rows, 4 terms at a time
//        out 0..3   4..7   8..11
//   in 0 [  a  ]   [  b  ]  ...               dense: lanes next to one another take groups a, b
//   in 1 [  a  ]   [  b  ]                    of outputs, SLICES of them share the sum over `in`
//   ...
//                                             dense_grad_input: lanes next to one another share
//                                             the sum over `out`, so both read whole lines
namespace copal {

enum Epilogue : int { NONE = 0, BIAS = 1, RELU = 2, RELU_GRAD = 4 };

COPAL_DEVICE void load_tile(float4* to, const float* from, int stride) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = load4(from + i * stride);
}

COPAL_DEVICE float dot4(float4 a, float4 b, float sum) {
  return a.x * b.x + (a.y * b.y + (a.z * b.z + (a.w * b.w + sum)));
}

// sum[4 r + i] += the four terms of row r and output i; w: by row, a row of four outputs each term,
// else four terms each output.
template <bool BY_ROW, int TILE>
COPAL_DEVICE void add_terms(float* sum, const float4* w, const float* x, int stride) {
#pragma unroll
  for (int r = 0; r < TILE; ++r) {
    const float4 v = load4(x + r * stride);
    if constexpr (BY_ROW) {
      const float term[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sum[4 * r] += term[k] * w[k].x;
        sum[4 * r + 1] += term[k] * w[k].y;
        sum[4 * r + 2] += term[k] * w[k].z;
        sum[4 * r + 3] += term[k] * w[k].w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[4 * r + i] = dot4(v, w[i], sum[4 * r + i]);
    }
  }
}

// Writes LEFT finished sums, of which the first has index `base` in a tile of 4 columns a row.
template <int WIDTH, int LEFT, int EPILOGUE>
COPAL_DEVICE void finish(const float* sum, int base, int row, int column,
                         const float* __restrict__ bias, const float* mask, float* out) {
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
    const int r = row + (base + i) / 4, c = column + (base + i) % 4;
    const bool inside = WIDTH % 4 == 0 || c < WIDTH;
    float v = sum[i];
    if constexpr ((EPILOGUE & BIAS) != 0) v += inside ? bias[c] : 0.f;
    if constexpr ((EPILOGUE & RELU) != 0) v = v < 0.f ? 0.f : v;
    if constexpr ((EPILOGUE & RELU_GRAD) != 0) v = mask[r * pad4(WIDTH) + c] > 0.f ? v : 0.f;
    out[r * pad4(WIDTH) + c] = inside ? v : 0.f;
  }
}

// out[r][j] = sum over k < TERMS of x[r][k] w(k, j), for j < WIDTH, through the epilogue. By row,
// w(k, j) = weight[k][j]; else w(k, j) = weight[j][k].
template <bool BY_ROW, int TERMS, int WIDTH, int ROWS, int THREADS, int SLICES, int TILE,
          int EPILOGUE>
COPAL_DEVICE void product(const float* __restrict__ weight, const float* __restrict__ bias,
                          const float* x, const float* mask, float* out) {
  constexpr int IN = pad4(TERMS), OUT = pad4(WIDTH), BLOCKS = IN / 4, GROUPS = OUT / 4;
  constexpr int SPAN = 32 / SLICES, ROW_TILES = ROWS / TILE, SUMS = 4 * TILE;
  constexpr int TASKS = (GROUPS + SPAN - 1) / SPAN * ROW_TILES, WARPS = THREADS / 32;
  constexpr int STEPS = (BLOCKS + SLICES - 1) / SLICES;
  constexpr int LEFT = SUMS > SLICES ? SUMS / SLICES : 1;
  constexpr int COPIES = SLICES > SUMS ? SLICES / SUMS : 1;
  constexpr int LINE = BY_ROW ? OUT : IN, TO_BLOCK = BY_ROW ? 4 * OUT : 4;
  static_assert(SLICES <= BLOCKS && ROWS % TILE == 0, "a slice without terms, or rows left over");
  const int lane = threadIdx.x % 32, slice = BY_ROW ? lane / SPAN : lane % SLICES;
  for (int turn = 0; turn < (TASKS + WARPS - 1) / WARPS; ++turn) {
    const int task = turn * WARPS + threadIdx.x / 32;
    if (TASKS % WARPS != 0 && task >= TASKS) break;
    const int row = task % ROW_TILES * TILE;
    const int group = task / ROW_TILES * SPAN + (BY_ROW ? lane % SPAN : lane / SLICES);
    const int column = 4 * (group < GROUPS ? group : GROUPS - 1);
    const float* w = weight + (BY_ROW ? column : column * IN);
    float sum[SUMS] = {};
    float4 now[4], next[4];
    load_tile(now, w + slice * TO_BLOCK, LINE);
#pragma unroll 2
    for (int step = 0; step < STEPS; ++step) {
      const int block = slice + step * SLICES;
      const int ahead = block + SLICES < BLOCKS ? block + SLICES : slice;
      load_tile(next, w + ahead * TO_BLOCK, LINE);
      if (BLOCKS % SLICES == 0 || block < BLOCKS)
        add_terms<BY_ROW, TILE>(sum, now, x + row * IN + 4 * block, IN);
#pragma unroll
      for (int i = 0; i < 4; ++i) now[i] = next[i];
    }
    const int base = sum_and_scatter<SUMS, BY_ROW ? 16 : SLICES / 2, BY_ROW ? SPAN : 1>(sum, lane);
    if (group < GROUPS && slice % COPIES == 0)
      finish<WIDTH, LEFT, EPILOGUE>(sum, base, row, column, bias, mask, out);
  }
}

// out[r][j] = sum over k of x[r][k] weight[k][j], plus bias[j], through a relu.
template <int FAN_IN, int FAN_OUT, int ROWS, int THREADS, int SLICES, int TILE, int EPILOGUE>
COPAL_DEVICE void dense(const float* __restrict__ weight, const float* __restrict__ bias,
                        const float* x, float* out) {
  product<true, FAN_IN, FAN_OUT, ROWS, THREADS, SLICES, TILE, EPILOGUE>(weight, bias, x, nullptr,
                                                                        out);
}

// out[r][k] = sum over j of x[r][j] weight[k][j], zero where mask[r][k] <= 0 for RELU_GRAD.
template <int FAN_IN, int FAN_OUT, int ROWS, int THREADS, int SLICES, int TILE, int EPILOGUE>
COPAL_DEVICE void dense_grad_input(const float* __restrict__ weight, const float* x,
                                   const float* mask, float* out) {
  product<false, FAN_OUT, FAN_IN, ROWS, THREADS, SLICES, TILE, EPILOGUE>(weight, nullptr, x, mask,
                                                                         out);
}

// Both products for weights that lie as the Program has them, [FAN_OUT][FAN_IN] without padding:
// those of which other operations read parts. One thread an output, nothing is shared.
template <int FAN_IN, int FAN_OUT, int ROWS, int THREADS, int EPILOGUE>
COPAL_DEVICE void dense_plain(const float* __restrict__ weight, const float* __restrict__ bias,
                              const float* x, float* out) {
  constexpr int IN = pad4(FAN_IN), OUT = pad4(FAN_OUT);
  for (int i = threadIdx.x; i < ROWS * OUT; i += THREADS) {
    const int r = i / OUT, j = i % OUT;
    float sum = 0.f;
    for (int k = 0; j < FAN_OUT && k < FAN_IN; ++k) sum += x[r * IN + k] * weight[j * FAN_IN + k];
    finish<FAN_OUT, 1, EPILOGUE>(&sum, 0, r, j, bias, nullptr, out);
  }
}

template <int FAN_IN, int FAN_OUT, int ROWS, int THREADS, int EPILOGUE>
COPAL_DEVICE void dense_grad_input_plain(const float* __restrict__ weight, const float* x,
                                         const float* mask, float* out) {
  constexpr int IN = pad4(FAN_IN), OUT = pad4(FAN_OUT);
  for (int i = threadIdx.x; i < ROWS * IN; i += THREADS) {
    const int r = i / IN, k = i % IN;
    float sum = 0.f;
    for (int j = 0; k < FAN_IN && j < FAN_OUT; ++j) sum += x[r * OUT + j] * weight[j * FAN_IN + k];
    finish<FAN_IN, 1, EPILOGUE>(&sum, 0, r, k, nullptr, mask, out);
  }
}

}  // namespace copal
