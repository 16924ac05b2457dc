# SPDX-License-Identifier: MIT
"""One file a peer and job; each runs with the peer's own interpreter and imports no copal."""
