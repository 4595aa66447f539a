"""Shared file storage in the tenant's words: its space, its clients, its exports, its limits.

A *space* is what a storage system keeps for one tenant (VAST: a tenant with its policies, views and
quotas; Lustre: a nodemap with its filesets). An integration implements `Spaces` and decides
nothing: `planning/tenancy/storage.py` compares a `SpaceState` with the tenant's record and says
which acts are made in which order; `execution/tenancy/spaces.py` carries them out, reads back and
judges. The records are in `model/storage.py`; docs/storage.md tells how one is registered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateRow
from provisioner.model.storage import SpaceAct, SpaceState
from provisioner.ports.inband import ShellCommand, ShellOutput


class SpaceReads(Protocol):
    """Readings. Raise `PortError` only; an answer that is whole but not as needed is a Blocker.

    A list that ends early, repeats an object or cannot be parsed is never a short list: the whole
    reading is a Blocker or raises `Malformed`, since an address that is not listed would count as
    shut out.
    """

    async def read(self, spaces: Collection[str]) -> Mapping[str, SpaceState] | Blocker:
        """Return the state of each of these spaces, read now; one that is not there has no
        handle.
        """
        ...

    async def find_names(self, handles: Collection[str]) -> Mapping[str, str] | Blocker:
        """Return which name the space of each handle has now; one that nothing has is left out.

        A space that was renamed is not gone: it serves on.
        """
        ...

    async def find_admitting(
        self, addresses: Collection[str]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        """Return for each address the names of all spaces that would serve it, also of spaces that
        no record names: by the system's own test where it has one, else by all its rules read now.
        """
        ...

    async def close(self) -> None: ...


class Spaces(SpaceReads, Protocol):
    """Spaces that can be changed."""

    async def apply(self, act: SpaceAct) -> Blocker | None:
        """Make one act and wait until the system says that it is done: None, or why it is not.

        An act that the system runs asynchronously is followed to its end; only a positive end
        counts. The adapter reads the changed object back and compares it before it returns None.
        A name that is somebody else's, an object of another space and a full system are Blockers
        that say what to do. On a half failure the space is not wider than before the act: a new
        export is closed until its rules are proved.
        """
        ...


class MountTrials(Protocol):
    """Of an adapter whose exports a host can mount with what it has: its `trials`. Pure.

    `seen`: the host's space first, then some of other tenants.
    """

    def write_trial(self, seen: Mapping[str, SpaceState]) -> ShellCommand | None: ...

    def judge_trial(
        self, node: str, seen: Mapping[str, SpaceState], told: ShellOutput
    ) -> tuple[GateRow, ...]: ...


def get_trials(spaces: SpaceReads) -> MountTrials | None:
    trials: MountTrials | None = getattr(spaces, "trials", None)
    return trials
