// SPDX-License-Identifier: MIT
// The rows of one learner, cut into blocks of 64, the rest into blocks of 32 and 16.
//
// Cost: O(blocks). Limits: padding never counts, `rows` says how many of the nb are real.
// Thread-safety: plain data.
//
//   100 rows:  | block 0: nb 64, 64 real | block 1: nb 32, 32 real | block 2: nb 16, 4 real |
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace copal {

// A kept buffer within one block: [width][nb], of which the first `rows` of every nb are real.
struct Segment {
  const float* data;
  size_t nb, rows;
};

struct Block {
  size_t first;  // row of the learner, also the padded row, since only the last block has padding
  size_t nb, rows;
};

inline constexpr size_t kMaxBlock = 64;

inline std::vector<Block> cut_rows(size_t rows) {
  std::vector<Block> blocks;
  for (size_t first = 0; first < rows;) {
    const size_t left = rows - first;
    const size_t nb = left > 48 ? 64 : left > 16 ? 32 : 16;
    blocks.push_back({first, nb, std::min(nb, left)});
    first += nb;
  }
  return blocks;
}

inline size_t padded_rows(const std::vector<Block>& blocks) {
  return blocks.empty() ? 0 : blocks.back().first + blocks.back().nb;
}

}  // namespace copal
