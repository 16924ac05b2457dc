// SPDX-License-Identifier: MIT
#include "module.hpp"

void bind_learner(nb::module_&) {}
