# SPDX-License-Identifier: MIT
"""Co-design: measure what actors and learners can do here, allocate cores, train by the plan."""
