// SPDX-License-Identifier: MIT
// While alive, this thread takes numbers below 1.2e-38 as 0: Adam's moments of dead weights decay
// into that range, where many processors are a hundred times slower.
//
// Cost: two register writes. Limits: x86-64 and Arm, elsewhere nothing happens. Thread-safety: the
// setting belongs to the thread.
//
//   scope {  FlushDenormals on;  ...  }  the former setting is back
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace copal {

class FlushDenormals {
 public:
  FlushDenormals() : saved_(read()) { write(saved_ | kBits); }
  ~FlushDenormals() { write(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kBits = 0x8040;
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t x) { _mm_setcsr(static_cast<unsigned>(x)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kBits = uint64_t{1} << 24;
  static uint64_t read() {
    uint64_t x;
    asm volatile("mrs %0, fpcr" : "=r"(x));
    return x;
  }
  static void write(uint64_t x) { asm volatile("msr fpcr, %0" : : "r"(x)); }
#else
  static constexpr uint64_t kBits = 0;
  static uint64_t read() { return 0; }
  static void write(uint64_t) {}
#endif
  uint64_t saved_;
};

}  // namespace copal
