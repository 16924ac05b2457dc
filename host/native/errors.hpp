// SPDX-License-Identifier: MIT
// The error that native code throws; bindings turn it into the class of copal.errors called `type`.
//
// Cost: six strings. Limits: `type` has to be a class of copal.errors. Thread-safety: plain data.
//
//   Error("SchemaError", field, expected, got, hint)  -->  copal.errors.SchemaError(field, ...)
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace copal {

struct Error : std::runtime_error {
  Error(std::string type, std::string field, std::string expected, std::string got,
        std::string hint = "")
      : std::runtime_error(field + ": expected " + expected + ", got " + got),
        type(std::move(type)),
        field(std::move(field)),
        expected(std::move(expected)),
        got(std::move(got)),
        hint(std::move(hint)) {}

  std::string type;  // class name in copal.errors, "SchemaError" for instance
  std::string field, expected, got, hint;
};

}  // namespace copal
