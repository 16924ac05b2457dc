// SPDX-License-Identifier: MIT
// Standard normal numbers as a function of seed, stream, update, row and column, without a state.
//
// Philox4x32-10 (Salmon et al. 2011) and Box-Muller, as `copal.program.noise` defines them; equal
// to that definition to a few units in the last place. Cost: one generator call for four columns.
// Limits: widths up to 2^18. Thread-safety: called by all threads of a block; nothing is shared.
//
//   counter: ( row | stream * 2^16 + column / 4 | update, low | update, high )   key: seed
//   words:   ( 0 1 ) -> columns 4k, 4k + 1    ( 2 3 ) -> columns 4k + 2, 4k + 3
namespace copal {

struct Words {
  unsigned v[4];
};

COPAL_DEVICE Words philox(Words c, unsigned key0, unsigned key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, c.v[0]), low0 = 0xD2511F53u * c.v[0];
    const unsigned high1 = __umulhi(0xCD9E8D57u, c.v[2]), low1 = 0xCD9E8D57u * c.v[2];
    c = {{high1 ^ c.v[1] ^ key0, low1, high0 ^ c.v[3] ^ key1, low0}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// Two numbers of two words. `sincospif` of 2 v is exact in its argument.
COPAL_DEVICE void normal_pair(unsigned a, unsigned b, float* out) {
  const float u = (float)((a >> 8) + 1u) * 5.9604644775390625e-8f;
  const float v = (float)(b >> 8) * 5.9604644775390625e-8f;
  const float radius = sqrtf(-2.f * logf(u));
  float sine, cosine;
  sincospif(2.f * v, &sine, &cosine);
  out[0] = radius * cosine;
  out[1] = radius * sine;
}

// Noise of the rows of a block; rows behind the batch repeat its last one.
template <int WIDTH, int ROWS, int THREADS>
COPAL_DEVICE void normal_rows(float* out, int first, int batch, const unsigned* seed, int stream,
                              const unsigned* update) {
  constexpr int STRIDE = pad4(WIDTH), GROUPS = STRIDE / 4;
  for (int i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
    const int r = i / GROUPS, group = i % GROUPS;
    const int row = first + r < batch ? first + r : batch - 1;
    const Words words =
        philox({{(unsigned)row, ((unsigned)stream << 16) + (unsigned)group, update[0], update[1]}},
               seed[0], seed[1]);
    float v[4];
    normal_pair(words.v[0], words.v[1], v);
    normal_pair(words.v[2], words.v[3], v + 2);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      out[r * STRIDE + 4 * group + c] = 4 * group + c < WIDTH ? v[c] : 0.f;
  }
}

}  // namespace copal
