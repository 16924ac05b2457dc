// SPDX-License-Identifier: MIT
// Settings of a replay buffer, and the checks of them.
//
// Cost: O(columns). Limits: those that the checks state. Stateless.
//
//   ReplayConfig + Schema --checked--> the same, or ConfigError / SchemaError naming the field
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

#include "errors.hpp"
#include "schema.hpp"

namespace copal {

struct ReplayConfig {
  uint64_t capacity = 0;        // rows
  double alpha = 0.6;           // exponent of priorities; 0 draws uniformly
  double eps = 1e-6;            // added to |TD| before the exponent
  unsigned fanout = 16;         // children a node
  unsigned n_step = 1;          // rewards summed into one row
  double gamma = 0.99;          // discount a step
  bool share_next_obs = false;  // take next_obs from a later row
  bool clip_bad = false;        // clip NaN, infinite and negative priorities instead of throwing
  uint64_t seed = 0;
};

namespace replay_detail {

inline std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

inline void check_range(const char* field, double v, double low, double high,
                        const char* expected) {
  if (!(v >= low && v <= high)) throw Error("ConfigError", field, expected, number(v));
}

inline ReplayConfig checked(const ReplayConfig& c) {
  if (c.capacity < 1 || c.capacity >= uint64_t{1} << 32) {
    throw Error("ConfigError", "capacity", "1 to 2^32 - 1 rows", std::to_string(c.capacity));
  }
  check_range("alpha", c.alpha, 0, 1, "a number in [0, 1]");
  check_range("eps", c.eps, 0, 1e6, "a number in [0, 1e6]");
  check_range("gamma", c.gamma, 0, 1, "a number in [0, 1]");
  check_range("n_step", c.n_step, 1, 65536, "an integer in [1, 65536]");
  if (c.fanout < 2 || c.fanout > 64 || (c.fanout & (c.fanout - 1))) {
    throw Error("ConfigError", "fanout", "2, 4, 8, 16, 32 or 64", std::to_string(c.fanout));
  }
  if (c.share_next_obs && c.capacity <= c.n_step) {
    throw Error("ConfigError", "capacity", "more than n_step rows, since next_obs is shared",
                std::to_string(c.capacity));
  }
  return c;
}

inline void require(const Schema& s, const char* name, const char* why) {
  if (s.find(name) != Schema::npos) return;
  throw Error("SchemaError", name, std::string("a column of this name, since ") + why, "none",
              "add the column, or set n_step=1 and share_next_obs=False");
}

inline void require_flag(const Schema& s, const char* name, const char* why) {
  require(s, name, why);
  const Column& c = s[s.find(name)];
  if (c.dtype == Dtype::b8 && c.shape.empty()) return;
  throw Error("SchemaError", name, "a bool scalar", dtype_name(c.dtype));
}

// Staging goes by names; says which one is missing.
inline Schema checked(Schema s, const ReplayConfig& c) {
  const char* why = c.share_next_obs ? "share_next_obs is on" : "n_step is above 1";
  if (!c.share_next_obs && c.n_step == 1) return s;
  require(s, "next_obs", why);
  require_flag(s, "terminated", why);
  require_flag(s, "truncated", why);
  if (c.n_step > 1) {
    require(s, "reward", "n_step is above 1");
    const Column& r = s[s.find("reward")];
    if ((r.dtype != Dtype::f32 && r.dtype != Dtype::f64) || !r.shape.empty()) {
      throw Error("SchemaError", "reward", "a float32 or float64 scalar, since n_step is above 1",
                  dtype_name(r.dtype));
    }
  }
  if (c.share_next_obs) {
    require(s, "obs", why);
    const Column &a = s[s.find("obs")], &b = s[s.find("next_obs")];
    if (a.dtype != b.dtype || a.shape != b.shape) {
      throw Error("SchemaError", "next_obs", "dtype and shape of `obs`, since share_next_obs is on",
                  "another one");
    }
  }
  return s;
}

}  // namespace replay_detail

}  // namespace copal
