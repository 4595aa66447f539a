"""The refusal of an act while the daemon only observes."""

from __future__ import annotations

from provisioner.ports import LookOnly
from provisioner.runtime import permit


def refuse_act(device: str, act: str) -> LookOnly:
    """Return the refusal of an act on a device, counted as withheld."""
    permit.count_withheld()
    return LookOnly(f"{device}: this daemon only observes, and would send: {act}"[:300])
