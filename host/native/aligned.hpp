// SPDX-License-Identifier: MIT
// A fixed-size array on 64-byte lines, zeroed, its end padded to a whole line so that the last
// vector may be read and written whole.
//
// Cost: construction O(n), access O(1). Limits: n below 2^61. Thread-safety: that of a plain array.
//
//   | x0 x1 ... x15 | ... | x(n-1) 0 0 0 |        one bar a 64-byte line (of 4-byte elements)
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace copal {

template <class T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(size_t n) : size_(n) {
    if (n == 0) return;
    if (n > (SIZE_MAX >> 1) / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
    data_ = static_cast<T*>(::operator new(bytes, std::align_val_t{64}));
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  Aligned(Aligned&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  Aligned& operator=(Aligned&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~Aligned() { ::operator delete(data_, std::align_val_t{64}); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace copal
