// SPDX-License-Identifier: MIT
// C functions around the priority tree, so that property tests can drive it from Python by ctypes:
//
//   g++ -std=c++20 -O2 -shared -fPIC -Ihost/native host/native/tests/ctypes/sum_tree.cpp -o tree.so
#include "sum_tree.hpp"

#include <vector>

#include "power.hpp"

using copal::PriorityTree;

extern "C" {

PriorityTree* tree_new(unsigned fanout, uint64_t capacity) {
  return copal::make_tree(fanout, capacity).release();
}
void tree_delete(PriorityTree* t) { delete t; }
void tree_update(PriorityTree* t, uint64_t n, const uint64_t* slot, const float* priority) {
  std::vector<uint64_t> scratch(n);
  t->update(n, slot, priority, scratch.data());
}
void tree_fill(PriorityTree* t, uint64_t first, uint64_t n, float priority) {
  t->fill(first, n, priority);
}
void tree_rebuild(PriorityTree* t) { t->rebuild(); }
void tree_descend(const PriorityTree* t, uint64_t n, double* mass, uint64_t* slot,
                  float* priority) {
  t->descend(n, mass, slot, priority);
}
double tree_total(const PriorityTree* t) { return t->total(); }
float tree_maximum(const PriorityTree* t) { return t->maximum(); }
float* tree_leaves(PriorityTree* t) { return t->leaves(); }
uint64_t tree_nbytes(const PriorityTree* t) { return t->nbytes(); }

void power(uint64_t n, const float* x, float y, float* out) {
  for (uint64_t i = 0; i < n; ++i) out[i] = copal::fast_pow(x[i], y, 0.f);
}
}
