"""Results of an erasure, as the daemon reads them (docs/erasure.md)."""

from __future__ import annotations

DONE = "done"
NOT_DONE = "not_done"
UNSUPPORTED = "unsupported"
