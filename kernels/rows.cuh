// SPDX-License-Identifier: MIT
// Work within a row: columns of the batch in and out, choices and sums over a row, formulas.
//
// Cost: a pass over the row. Limits: none. Thread-safety: `load_rows` is called by all threads of a
// block; the others by all lanes of the warp that has the row, and give all of them the same
// result.
//
//   warp 0: row 0, row W, ...     lane 0: column 0, 32, ...   a single number of a row: held by
//   warp 1: row 1, row W + 1...   lane 1: column 1, 33, ...   every lane of its warp
namespace copal {

// A column of the batch, [batch][WIDTH], to a row block; rows behind the batch repeat its last one.
template <int WIDTH, int ROWS, int THREADS>
COPAL_DEVICE void load_rows(const float* __restrict__ column, float* out, int first, int batch) {
  constexpr int STRIDE = pad4(WIDTH);
  for (int i = threadIdx.x; i < ROWS * STRIDE; i += THREADS) {
    const int r = i / STRIDE, c = i % STRIDE;
    const int row = first + r < batch ? first + r : batch - 1;
    out[i] = c < WIDTH ? column[row * WIDTH + c] : 0.f;
  }
}

// NaN wins, as in NumPy; the GPU's own minimum drops it.
COPAL_DEVICE float minimum(float x, float y) { return x < y || x != x ? x : y; }
COPAL_DEVICE float maximum(float x, float y) { return x > y || x != x ? x : y; }
COPAL_DEVICE int minimum(int x, int y) { return x < y ? x : y; }
COPAL_DEVICE int maximum(int x, int y) { return x > y ? x : y; }
COPAL_DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }
COPAL_DEVICE float sign(float x) { return x > 0.f ? 1.f : (x < 0.f ? -1.f : x); }

// Both sums are the same whatever the number of lanes does at the same time: fixed order.
template <int WIDTH>
COPAL_DEVICE float row_sum(const float* x) {
  float sum = 0.f;
  if constexpr (WIDTH <= 32) {
    for (int c = 0; c < WIDTH; ++c) sum += x[c];
  } else {
    for (int c = threadIdx.x % 32; c < WIDTH; c += 32) sum += x[c];
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(WARP, sum, mask);
  }
  return sum;
}

template <int WIDTH>
COPAL_DEVICE float row_max(const float* x) {
  float most = x[0];
  if constexpr (WIDTH <= 32) {
    for (int c = 1; c < WIDTH; ++c) most = maximum(most, x[c]);
  } else {
    for (int c = threadIdx.x % 32; c < WIDTH; c += 32) most = maximum(most, x[c]);
    for (int mask = 16; mask > 0; mask /= 2)
      most = maximum(most, __shfl_xor_sync(WARP, most, mask));
  }
  return most;
}

template <int WIDTH>
COPAL_DEVICE int row_argmax(const float* x) {
  const float most = row_max<WIDTH>(x);
  int first = WIDTH;
  if constexpr (WIDTH <= 32) {
    for (int c = WIDTH - 1; c >= 0; --c) first = x[c] == most || x[c] != x[c] ? c : first;
  } else {
    for (int c = threadIdx.x % 32; c < WIDTH; c += 32)
      if (first == WIDTH && (x[c] == most || x[c] != x[c])) first = c;
    for (int mask = 16; mask > 0; mask /= 2)
      first = minimum(first, __shfl_xor_sync(WARP, first, mask));
  }
  return first;
}

// x[index], NaN for an index that the row does not have.
template <int WIDTH>
COPAL_DEVICE float gather(const float* x, int index) {
  return index >= 0 && index < WIDTH ? x[index] : not_a_number();
}

// Writes an output of the Program and notes a number that is not finite.
COPAL_DEVICE void output(float* to, float value, const Status& status) {
  if (!finite(value)) status.fail();
  *to = value;
}

}  // namespace copal
