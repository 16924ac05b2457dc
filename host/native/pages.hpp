// SPDX-License-Identifier: MIT
// Arrays that are zero without being touched, so that memory is taken as it is first written.
//
// Cost: O(1), whatever the size. Limits: trivially copyable items. Alignment: 64 bytes, and 2 MiB
// with huge pages from 2 MiB on, where the system has them. Not synchronised.
//
//   | unused to the boundary | items ................ | unused |
//   ^ mapped or calloc'ed    ^ 64-byte or 2 MiB line
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace copal {

template <class T>
class Pages {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Pages() = default;
  explicit Pages(size_t size) : size_(size) {
    if (size > (SIZE_MAX >> 1) / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = size * sizeof(T);
#if defined(__linux__)
    if (bytes >= kHuge) {
      mapped_ = bytes + kHuge;
      base_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base_ == MAP_FAILED) throw std::bad_alloc();
      data_ = align(base_, kHuge);
      ::madvise(data_, bytes, MADV_HUGEPAGE);  // a hint: it may fail
      return;
    }
#endif
    base_ = std::calloc(bytes + kLine, 1);
    if (!base_) throw std::bad_alloc();
    data_ = align(base_, kLine);
  }
  ~Pages() { release(); }
  Pages(Pages&& o) noexcept { swap(o); }
  Pages& operator=(Pages&& o) noexcept {
    swap(o);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }
  size_t nbytes() const { return size_ * sizeof(T); }

 private:
  static constexpr size_t kLine = 64, kHuge = size_t{1} << 21;

  static T* align(void* p, size_t to) {
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(p) + to - 1) / to * to);
  }
  void swap(Pages& o) {
    std::swap(base_, o.base_);
    std::swap(mapped_, o.mapped_);
    std::swap(size_, o.size_);
    std::swap(data_, o.data_);
  }
  void release() {
#if defined(__linux__)
    if (mapped_) {
      ::munmap(base_, mapped_);
      return;
    }
#endif
    std::free(base_);
  }

  void* base_ = nullptr;
  size_t mapped_ = 0;  // bytes of the mapping, 0 for heap memory
  size_t size_ = 0;
  T* data_ = nullptr;
};

}  // namespace copal
