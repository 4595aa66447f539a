"""An answer that is kept under an idempotency key, so that a change is made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
