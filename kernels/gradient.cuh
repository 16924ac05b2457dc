// SPDX-License-Identifier: MIT
// A block's share of the gradient: sums over its rows, written to global memory.
//
// Cost: ROWS * IN * OUT multiply-adds, one write (and, from the second row block of a share on, one
// read) of each number. Limits: ROWS at most 16, which a thread holds in registers.
// Thread-safety: called by all threads of a block; each number belongs to one thread, no atomics.
//
//   share, laid out as the parameters:  [ weights [IN][OUT] | bias | ... ]
//                                         tile 4 x 4 a thread, rows 0, 1, ... added in order
namespace copal {

template <int ROWS>
COPAL_DEVICE void load_column(float4* to, const float* x, int stride, int rows) {
  const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) to[r] = r < rows ? load4(x + r * stride) : zero;
}

COPAL_DEVICE float4 multiply_add(float a, float4 b, float4 c) {
  return make_float4(a * b.x + c.x, a * b.y + c.y, a * b.z + c.z, a * b.w + c.w);
}

// share[k][j] (+)= sum over r of y[r][k] x[r][j]; rows from `rows` on count nothing.
template <int FAN_IN, int FAN_OUT, int ROWS, int THREADS>
COPAL_DEVICE void dense_grad_weight(const float* x, const float* y, float* __restrict__ share,
                                    int rows, bool add) {
  constexpr int IN = pad4(FAN_IN), OUT = pad4(FAN_OUT), GROUPS = OUT / 4;
  constexpr int ACROSS = GROUPS < THREADS ? GROUPS : THREADS, DOWN = THREADS / ACROSS;
  const int first = threadIdx.x / ACROSS;
  if (first >= DOWN) return;
  for (int group = threadIdx.x % ACROSS; group < GROUPS; group += ACROSS) {
    float4 g[ROWS];
    load_column<ROWS>(g, x + 4 * group, OUT, rows);
    for (int block = first; block < IN / 4; block += DOWN) {
      float* to = share + 4 * block * OUT + 4 * group;
      float4 sum[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[i] = add ? load4(to + i * OUT) : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const float4 v = load4(y + r * IN + 4 * block);
        sum[0] = multiply_add(v.x, g[r], sum[0]);
        sum[1] = multiply_add(v.y, g[r], sum[1]);
        sum[2] = multiply_add(v.z, g[r], sum[2]);
        sum[3] = multiply_add(v.w, g[r], sum[3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) store4(to + i * OUT, sum[i]);
    }
  }
}

// The same for weights as the Program has them, [FAN_OUT][FAN_IN].
template <int FAN_IN, int FAN_OUT, int ROWS, int THREADS>
COPAL_DEVICE void dense_grad_weight_plain(const float* x, const float* y, float* __restrict__ share,
                                          int rows, bool add) {
  for (int i = threadIdx.x; i < FAN_OUT * FAN_IN; i += THREADS) {
    const int j = i / FAN_IN, k = i % FAN_IN;
    float sum = add ? share[i] : 0.f;
    for (int r = 0; r < rows; ++r) sum += x[r * pad4(FAN_OUT) + j] * y[r * pad4(FAN_IN) + k];
    share[i] = sum;
  }
}

// share[j] (+)= sum over r of x[r][j].
template <int WIDTH, int ROWS, int THREADS>
COPAL_DEVICE void sum_over_rows(const float* x, float* __restrict__ share, int rows, bool add) {
  for (int j = threadIdx.x; j < WIDTH; j += THREADS) {
    float sum = add ? share[j] : 0.f;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sum += r < rows ? x[r * pad4(WIDTH) + j] : 0.f;
    share[j] = sum;
  }
}

// Numbers of the gradient that no operation adds to.
template <int THREADS>
COPAL_DEVICE void fill_zero(float* __restrict__ share, int count) {
  for (int i = threadIdx.x; i < count; i += THREADS) share[i] = 0.f;
}

}  // namespace copal
