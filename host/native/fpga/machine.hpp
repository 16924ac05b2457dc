// SPDX-License-Identifier: MIT
// Executes prepared instructions on the memories of the model of the FPGA engine.
//
// Cost: that of the instructions; nothing is allocated once the largest has run. Limits: those of
// docs/hardware.md. Thread-safety: one Machine one thread, which may hold no GIL.
//
//   Python: decodes, checks, times --set--> code --run--> until END or an error
#pragma once
#include <cstdint>
#include <vector>

#include "product.hpp"
#include "update.hpp"
#include "vector.hpp"

namespace copal::fpga {

struct Prepared {
  int op = kEnd;
  int error = kNone;  // that its fields or addresses have
  int64_t cycles = 0, slots = 0;
  Fields fields;
};

struct RunEnd {
  int error = kNone;  // code of docs/hardware.md
  int64_t pc = 0, cycles = 0, slots = 0;
};

class Machine {
 public:
  Machine(const Memories& memories, const int64_t* parabolas, size_t words)
      : memories_(memories), functions_(parabolas), code_(words) {}

  void set(size_t address, const Prepared& prepared) { code_.at(address) = prepared; }

  RunEnd run(int64_t pc, bool accumulate) {
    RunEnd end;
    for (end.pc = pc;; ++end.pc) {
      if (end.pc < 0 || end.pc >= static_cast<int64_t>(code_.size())) {
        end.error = kAddress;
        return end;
      }
      const Prepared& now = code_[static_cast<size_t>(end.pc)];
      end.error = now.error;
      if (end.error) return end;
      end.error = execute(now, accumulate);
      end.cycles += now.cycles;
      end.slots += now.slots;
      if (end.error || now.op == kEnd) return end;
    }
  }

 private:
  ErrorCode execute(const Prepared& now, bool accumulate) {
    const Fields& f = now.fields;
    switch (now.op) {
      case kProduct:
        products_.run(memories_, f, accumulate);
        break;
      case kVector:
        vector(memories_, f, functions_);
        break;
      case kQuant:
        return quant(memories_, f, values_);
      case kUpdate:
        update(memories_, f, values_);
        break;
      case kNorm:
        norm(memories_, f);
        break;
      case kBroadcast:
        broadcast(memories_, f);
        break;
      case kScalar:
        scalar(memories_, f);
        break;
      default:
        break;
    }
    return kNone;
  }

  Memories memories_;
  Functions functions_;
  std::vector<Prepared> code_;
  Products products_;
  std::vector<int64_t> values_;
};

}  // namespace copal::fpga
