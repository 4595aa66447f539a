"""Stored records of work: operations (one active per node) and the ledger of physical actions.

The protocol is intent with a snapshot, action within a window, outcome
(docs/sources/engine.md#ledger).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# An answer that is kept under an idempotency key, so that a change is made once.


@dataclass(frozen=True)
class KeptAnswer:
    """What was answered to the first request with a key. `status` 0: nothing yet."""

    fingerprint: str
    status: int
    headers: Mapping[str, str]
    body: str


class TooManyKeys(Exception):
    """A caller has as many keys as are kept for one. `free_in_s`: until its oldest is dropped."""

    def __init__(self, free_in_s: float) -> None:
        super().__init__(f"the oldest is dropped in {free_in_s:.0f} s")
        self.free_in_s = free_in_s


OUTSIDE = "loop: "  # before what an integration's own loop drives: the reconciler leaves it alone


class OperationStatus(StrEnum):
    ACTIVE = "active"
    DONE = "done"
    PARKED = "parked"  # a person must look; it is not retried


class Operation(Record):
    """One operation. Every write of its driver is fenced by (`epoch`, `version`)."""

    id: str
    node: str
    want: str  # "journey" | "release" | ...: its purpose
    status: OperationStatus = OperationStatus.ACTIVE
    epoch: int = 0  # raised by each driver that takes it over
    version: int = 0  # raised by each write
    phase: str = ""  # for people; no decision reads it
    opened_at: float = 0.0
    note: str = ""

    @property
    def public_id(self) -> str:
        """Return the id in the form of a path, where the "#" of "node#7" would begin a fragment."""
        node, _, number = self.id.rpartition("#")
        return f"{node}:{number}"

    @property
    def is_outside(self) -> bool:
        """Return whether an integration's own loop drives it, and no reconciler may."""
        return self.want.startswith(OUTSIDE)


def parse_public_id(public: str) -> str:
    """Return the inverse of an operation's `public_id`."""
    node, _, number = public.rpartition(":")
    return f"{node}#{number}"


class ActionStatus(StrEnum):
    INTENDED = "intended"  # may or may not have been sent
    SENT = "sent"  # the device acknowledged it; its effect is still awaited
    CONFIRMED = "confirmed"  # its effect was observed
    ABSENT = "absent"  # provably did not happen
    FAILED = "failed"  # the device reported a failure
    UNCLEAR = "unclear"  # its effect cannot be determined; parked


class LedgerEntry(Record):
    """One physical action. `before` is the state before it: versions, tasks, reset counters."""

    operation: str
    node: str
    action: str  # stable key, "update bluefield.bundle DPU_1 2.9.0 2.10.0" or "cold_boot #3"
    attempt: int
    status: ActionStatus
    intended_at: float
    before: dict[str, Any]
    task: str = ""  # task address, once the device returned one
    outcome: str = ""
    settled_at: float = 0.0
    epoch: int | None = None  # of the operation at the intent; None: unknown, an older version's
    settled_epoch: int | None = None  # of the operation that settled it; None: as above, or open
