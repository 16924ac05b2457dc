// SPDX-License-Identifier: MIT
// Executes prepared instructions on the memories of the model of the FPGA engine.
//
// Cost: that of the instructions; nothing is allocated once the largest has run. Limits: those of
// docs/hardware.md. Thread-safety: one Machine one thread, which may hold no GIL.
//
//   Python: decodes, checks, times --set--> code --run--> until END or an error
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "product.hpp"
#include "update.hpp"
#include "vector.hpp"

namespace copal::fpga {

struct Prepared {
  int op = kEnd;
  int error = kNone;   // that its fields or addresses have
  int64_t steps = 0;   // cycles that it takes the sequencer; 0 for END
  int64_t settle = 0;  // cycles from the last of them until its results can be read
  bool fence = false;  // the next instruction waits for all results
  int64_t slots = 0;   // in which the array adds products
  Fields fields;
};

// The engine's time, see copal.fpga.model.timing. `fetch`: fewest cycles between instructions.
class Clock {
 public:
  explicit Clock(int64_t fetch) : fetch_(fetch), taken_(-fetch) {}

  void take(const Prepared& next) {
    taken_ = std::max(now_, taken_ + fetch_);
    now_ = taken_ + next.steps + 1;
    if (next.steps == 0) {
      now_ = std::max(now_, settled_);
      return;
    }
    settled_ = std::max(settled_, now_ + next.settle);
    if (next.fence) now_ = settled_;
  }

  int64_t now() const { return now_; }

 private:
  int64_t fetch_, taken_, now_ = 0, settled_ = 0;
};

struct RunEnd {
  int error = kNone;  // code of docs/hardware.md
  int64_t pc = 0, cycles = 0, slots = 0;
};

class Machine {
 public:
  // `fetch`: fewest cycles between instructions; `edge`: those of a RUN's start and end.
  Machine(const Memories& memories, const int64_t* parabolas, size_t words, int64_t fetch,
          int64_t edge)
      : memories_(memories), functions_(parabolas), code_(words), fetch_(fetch), edge_(edge) {}

  void set(size_t address, const Prepared& prepared) { code_.at(address) = prepared; }

  RunEnd run(int64_t pc, bool accumulate) {
    RunEnd end;
    Clock clock(fetch_);
    for (end.pc = pc;; ++end.pc) {
      end.cycles = clock.now() + edge_;
      if (end.pc < 0 || end.pc >= static_cast<int64_t>(code_.size())) {
        end.error = kAddress;
        return end;
      }
      const Prepared& now = code_[static_cast<size_t>(end.pc)];
      end.error = now.error;
      if (end.error) return end;
      end.error = execute(now, accumulate);
      clock.take(now);
      end.cycles = clock.now() + edge_;
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
  int64_t fetch_, edge_;
  Products products_;
  std::vector<int64_t> values_;
};

}  // namespace copal::fpga
