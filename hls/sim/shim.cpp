// SPDX-License-Identifier: MIT
// C functions around the Verilated top of the engine: its two streams and its registers.
//
// Cost: two evaluations of the model a clock cycle. Every wait has a limit of cycles, those of
// `sim_exchange` one of seconds too. One engine is for one thread at a time.
#include <chrono>
#include <cstdint>
#include <memory>

#include "Vcopal_engine.h"
#include "verilated.h"

namespace {

enum Status : int { kDone = 0, kTimeout = 1, kOverflow = 2 };

// How many cycles go by between two looks at the clock on the wall.
constexpr uint64_t kLook = 1 << 14;
constexpr int kResetCycles = 16;
constexpr int kRegisterCycles = 4096;

}  // namespace

struct Sim {
  std::unique_ptr<VerilatedContext> context{new VerilatedContext};
  std::unique_ptr<Vcopal_engine> top;
  uint64_t cycles = 0;
  uint64_t random = 1;

  // Inputs are set before; outputs may be read between the two halves of a cycle.
  void settle() {
    top->aclk = 0;
    top->eval();
  }
  void edge() {
    top->aclk = 1;
    top->eval();
    ++cycles;
  }
  void cycle() {
    settle();
    edge();
  }
  // True in `share` of 65536 calls.
  bool stalls(uint32_t share) {
    if (share == 0) return false;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return (random >> 32 & 0xffff) < share;
  }
};

extern "C" {

Sim* sim_new(uint32_t seed) {
  auto* s = new Sim;
  s->context->randReset(2);
  s->context->randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
  s->random = seed * 2654435769ull + 1;
  s->top.reset(new Vcopal_engine{s->context.get()});
  auto& t = *s->top;
  t.s_axis_tvalid = t.m_axis_tready = 0;
  t.s_axil_awvalid = t.s_axil_wvalid = t.s_axil_arvalid = 0;
  t.s_axil_bready = t.s_axil_rready = 1;
  t.s_axis_tkeep = 0xff;
  t.aresetn = 0;
  for (int i = 0; i < kResetCycles; ++i) s->cycle();
  t.aresetn = 1;
  s->cycle();
  s->cycles = 0;
  return s;
}

void sim_free(Sim* s) {
  s->top->final();
  delete s;
}

uint64_t sim_cycles(const Sim* s) { return s->cycles; }

void sim_idle(Sim* s, uint64_t cycles) {
  while (cycles--) s->cycle();
}

// Returns 0, or 1 if the register did not answer.
int sim_read32(Sim* s, uint32_t offset, uint32_t* value) {
  auto& t = *s->top;
  t.s_axil_araddr = offset;
  t.s_axil_arvalid = 1;
  bool asked = false;
  for (int i = 0; i < kRegisterCycles; ++i) {
    s->settle();
    const bool taken = t.s_axil_arvalid && t.s_axil_arready;
    const bool answered = t.s_axil_rvalid && (asked || taken);
    *value = t.s_axil_rdata;
    s->edge();
    if (taken) {
      t.s_axil_arvalid = 0;
      asked = true;
    }
    if (answered) return kDone;
  }
  t.s_axil_arvalid = 0;
  return kTimeout;
}

int sim_write32(Sim* s, uint32_t offset, uint32_t value) {
  auto& t = *s->top;
  t.s_axil_awaddr = offset;
  t.s_axil_wdata = value;
  t.s_axil_wstrb = 0xf;
  t.s_axil_awvalid = t.s_axil_wvalid = 1;
  for (int i = 0; i < kRegisterCycles; ++i) {
    s->settle();
    const bool address = t.s_axil_awvalid && t.s_axil_awready;
    const bool data = t.s_axil_wvalid && t.s_axil_wready;
    const bool answered = t.s_axil_bvalid;
    s->edge();
    if (address) t.s_axil_awvalid = 0;
    if (data) t.s_axil_wvalid = 0;
    if (answered) return kDone;
  }
  t.s_axil_awvalid = t.s_axil_wvalid = 0;
  return kTimeout;
}

// Sends `sending` beats, the last with TLAST, and receives up to TLAST, if `room` is not 0. A beat
// waits in `stall_tx` and `stall_rx` of 65536 cycles. `counts`: beats sent, beats received.
int sim_exchange(Sim* s, const uint64_t* tx, uint64_t sending, uint64_t* rx, uint64_t room,
                 uint32_t stall_tx, uint32_t stall_rx, uint64_t limit, double seconds,
                 uint64_t* counts) {
  auto& t = *s->top;
  uint64_t& sent = counts[0];
  uint64_t& received = counts[1];
  sent = received = 0;
  bool ended = room == 0;
  int status = kTimeout;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < limit; ++i) {
    // A beat that was offered stays until it is taken.
    if (!t.s_axis_tvalid && sent < sending && !s->stalls(stall_tx)) {
      t.s_axis_tvalid = 1;
      t.s_axis_tdata = tx[sent];
      t.s_axis_tlast = sent + 1 == sending;
    }
    t.m_axis_tready = !ended && !s->stalls(stall_rx);
    s->settle();
    const bool out = t.s_axis_tvalid && t.s_axis_tready;
    const bool in = t.m_axis_tvalid && t.m_axis_tready;
    const uint64_t data = t.m_axis_tdata;
    const bool last = t.m_axis_tlast;
    s->edge();
    if (out) {
      t.s_axis_tvalid = 0;
      ++sent;
    }
    if (in) {
      if (received == room) {
        status = kOverflow;
        break;
      }
      rx[received++] = data;
      ended = last;
    }
    if (ended && sent == sending) {
      status = kDone;
      break;
    }
    if (i % kLook == kLook - 1) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      if (passed.count() > seconds) break;
    }
  }
  t.s_axis_tvalid = t.m_axis_tready = 0;
  return status;
}

}  // extern "C"
