// SPDX-License-Identifier: MIT
// The reduce step: the sum of the shares in fixed order, its norm, Adam, averaging of targets.
//
// Cost: one read of every share; 7 numbers read or written a parameter. Limits: sizes are multiples
// of 4. Thread-safety: each parameter belongs to one thread; old and new state lie in two places,
// so that a failed update has changed nothing.
//
//   shares     [0] g g g g ...      new state  = f(old state, (g0 + g1 + ... ) / batch)
//              [1] g g g g ...      old state stays until the next update has succeeded
//              ...
namespace copal {

template <int SIZE, int SHARES>
COPAL_DEVICE float4 sum_of_shares(const float* __restrict__ shares, int at) {
  float4 sum = load4(shares + at);
#pragma unroll 8
  for (int s = 1; s < SHARES; ++s) {
    const float4 v = load4(shares + (long long)s * SIZE + at);
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  }
  return sum;
}

COPAL_DEVICE float4 scaled(float4 v, float by) {
  return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}

COPAL_DEVICE bool finite4(float4 v) {
  return finite(v.x) && finite(v.y) && finite(v.z) && finite(v.w);
}

// The mean gradient, and this block's part of its squared norm.
template <int SIZE, int SHARES, int THREADS>
COPAL_DEVICE void sum_shares(const float* __restrict__ shares, float* __restrict__ mean,
                             double* __restrict__ norms, float scale, const Status& status) {
  COPAL_SHARED(memory);
  double* part = reinterpret_cast<double*>(memory);
  const int at = 4 * (blockIdx.x * THREADS + threadIdx.x);
  double square = 0.0;
  if (at < SIZE) {
    const float4 g = scaled(sum_of_shares<SIZE, SHARES>(shares, at), scale);
    if (!finite4(g)) status.fail();
    store4(mean + at, g);
    square = (double)g.x * g.x + (double)g.y * g.y + (double)g.z * g.z + (double)g.w * g.w;
  }
  for (int mask = 16; mask > 0; mask /= 2) square += __shfl_xor_sync(WARP, square, mask);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = square;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0.0;
  for (int w = 0; w < THREADS / 32; ++w) sum += part[w];
  norms[blockIdx.x] = sum;
}

// min(1, most / norm), from the parts of the squared norm; every warp adds them up for itself.
template <int PARTS>
COPAL_DEVICE float clip_factor(const double* __restrict__ norms, float most) {
  double sum = 0.0;
  for (int i = threadIdx.x % 32; i < PARTS; i += 32) sum += norms[i];
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(WARP, sum, mask);
  const float norm = sqrtf((float)sum);
  return norm > most ? most / norm : 1.f;
}

// How far the moments of a network have come: once an update, by one thread.
COPAL_DEVICE void count_step(const double* powers, double* next, double beta1, double beta2) {
  next[0] = powers[0] * beta1;
  next[1] = powers[1] * beta2;
  next[2] = 1.0 / (1.0 - next[0]);
  next[3] = 1.0 / (1.0 - next[1]);
}

struct Adam {
  float keep1, keep2;        // 1 - beta
  float correct1, correct2;  // 1 / (1 - beta^t)
  float rate, eps;
};

COPAL_DEVICE float adam_step(const Adam& a, float g, float p, float& first, float& second) {
  first += a.keep1 * (g - first);
  second += a.keep2 * (g * g - second);
  return p - a.rate * (first * a.correct1) / (sqrtf(second * a.correct2) + a.eps);
}

COPAL_DEVICE float4 adam_step4(const Adam& a, float4 g, float4 p, float4& first, float4& second) {
  return make_float4(
      adam_step(a, g.x, p.x, first.x, second.x), adam_step(a, g.y, p.y, first.y, second.y),
      adam_step(a, g.z, p.z, first.z, second.z), adam_step(a, g.w, p.w, first.w, second.w));
}

COPAL_DEVICE float4 toward(float4 target, float4 source, float tau) {
  return make_float4(target.x + tau * (source.x - target.x), target.y + tau * (source.y - target.y),
                     target.z + tau * (source.z - target.z),
                     target.w + tau * (source.w - target.w));
}

// A target network on its own: source has not been trained in this update, or more follows.
template <int SIZE, int THREADS>
COPAL_DEVICE void average(const float* __restrict__ source, const float* from, float* to,
                          float tau) {
  const int at = 4 * (blockIdx.x * THREADS + threadIdx.x);
  if (at < SIZE) store4(to + at, toward(load4(from + at), load4(source + at), tau));
}

}  // namespace copal
