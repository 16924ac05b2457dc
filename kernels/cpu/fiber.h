// SPDX-License-Identifier: MIT
// A stack of its own for each CUDA thread, and the switch from one to another.
//
// Cost of a switch: about ten instructions on x86-64 and aarch64, a system call elsewhere.
// Limits: STACK bytes a thread. Thread-safety: one host thread at a time.
//
//   scheduler  --resume-->  fiber 0 | fiber 1 | ...   each: [ stack ........ | saved registers ]
//              <--pause---
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace cuda_cpu {

constexpr std::size_t STACK = 128 * 1024;

#if defined(__x86_64__)
extern "C" void copal_fiber_switch(void** from, void* to);
asm(R"(
.text
.weak copal_fiber_switch
.hidden copal_fiber_switch
.type copal_fiber_switch,@function
copal_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size copal_fiber_switch,.-copal_fiber_switch
)");
#elif defined(__aarch64__)
extern "C" void copal_fiber_switch(void** from, void* to);
asm(R"(
.text
.weak copal_fiber_switch
.hidden copal_fiber_switch
.type copal_fiber_switch,%function
copal_fiber_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size copal_fiber_switch,.-copal_fiber_switch
)");
#endif

class Fiber {
 public:
  Fiber() : stack_(static_cast<char*>(std::malloc(STACK))) {
    if (stack_ == nullptr) std::abort();
  }
  ~Fiber() { std::free(stack_); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Puts the fiber at the start of `entry`, which must never return.
  void start(void (*entry)()) {
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>((reinterpret_cast<std::uintptr_t>(stack_) + STACK) &
                                          ~std::uintptr_t{15});
    *--top = nullptr;  // keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(entry);
    saved_ = top - 6;
#elif defined(__aarch64__)
    void** top = reinterpret_cast<void**>((reinterpret_cast<std::uintptr_t>(stack_) + STACK) &
                                          ~std::uintptr_t{15});
    top -= 20;
    top[11] = reinterpret_cast<void*>(entry);
    saved_ = top;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = STACK;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#endif
  }

  // Runs the fiber until it pauses; called by the scheduler.
  void resume() {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, STACK);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    copal_fiber_switch(&main_, saved_);
#else
    swapcontext(&main_, &context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }

  // Back to the scheduler; called in the fiber.
  void pause() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_, bottom_, size_);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    copal_fiber_switch(&saved_, main_);
#else
    swapcontext(&context_, &main_);
#endif
    entered();
  }

  // To be called first of all in a fiber that has just got its turn.
  void entered() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_, &bottom_, &size_);
    fake_ = nullptr;
#endif
  }

 private:
  char* stack_;
#if defined(__x86_64__) || defined(__aarch64__)
  void* saved_ = nullptr;
  void* main_ = nullptr;
#else
  ucontext_t context_{};
  ucontext_t main_{};
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* fake_ = nullptr;
#endif
};

}  // namespace cuda_cpu
