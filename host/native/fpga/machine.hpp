// SPDX-License-Identifier: MIT
// Executes prepared instructions on the memories of the model of the FPGA engine.
//
// Cost: that of the instructions; nothing is allocated once the largest has run. Limits: exp, log
// and tanh are left to the caller. Thread-safety: one Machine one thread, which may hold no GIL.
//
//   Python: decodes, checks, times --set--> code --run--> until END, an error, or `elsewhere`
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
  int error = kNone;       // code of docs/hardware.md
  bool elsewhere = false;  // `pc` is an instruction that the caller executes and goes on behind
  int64_t pc = 0, cycles = 0, slots = 0;
};

class Machine {
 public:
  Machine(const Memories& memories, size_t words) : memories_(memories), code_(words) {}

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
      end.elsewhere = now.op == kVector && now.fields.vop >= kExp;
      if (end.elsewhere) return end;
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
        vector(memories_, f);
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
  std::vector<Prepared> code_;
  Products products_;
  std::vector<int64_t> values_;
};

}  // namespace copal::fpga
