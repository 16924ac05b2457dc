// SPDX-License-Identifier: MIT
#include "module.hpp"

void bind_replay(nb::module_&) {}
