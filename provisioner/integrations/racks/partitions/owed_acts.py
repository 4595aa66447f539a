"""Acts on NVLink partitions whose end the manager did not show yet: in a file before each is sent.

One that the manager completed may be listed an hour later (infra-controller#572): until then its
partition is made by nobody again, and no tray that it has counts as being in none. A record ends by
a list that shows the act's end, or by the manager's word that it did nothing, and never by silence.
A tray that leaves meanwhile waits for that, or for a person's word; where the manager was never
seen to take the request, until it is older than any that was ever listed late.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import Field

from provisioner.integrations.racks.duty.approval import read_vouched
from provisioner.integrations.racks.locks import hold_name
from provisioner.integrations.racks.partitions.nmx_client import Fate, NmxClient
from provisioner.integrations.racks.partitions.tenant_partitions import (
    ENDED,
    Gpu,
    Partition,
    PartitionAct,
    Verb,
    is_so,
)
from provisioner.integrations.racks.plan import read_record
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.whole_files import replace_file

FILE = "nvlink-owed.json"
OWED_MAX = 4096
UNLISTED_S = 7200.0  # then it is asked for again; one was listed over an hour after its end
UNNAMED = "?"
TRIES = 200  # of the file, which each has for a moment


class OwedAct(Record):
    """One act. `operation`: "" until the manager took it, UNNAMED where it named none."""

    act: PartitionAct
    at: float  # of the wall's clock, when it was sent
    operation: str = Field(default="", max_length=128)
    completed: bool = False  # by the manager's word
    again: bool = False  # it was sent before, and nobody saw that end
    taken: bool = False  # by the manager, when it was sent before

    @property
    def mark(self) -> str:
        """What a person's word is about."""
        told = f"{self.act.name} {sorted(self.act.members)} {self.at!r}"
        return f"nvlink-owed.{hashlib.sha256(told.encode()).hexdigest()[:8]}"


class OwedFile(Record):
    """All of them, in the order in which they were sent."""

    acts: tuple[OwedAct, ...] = Field(default=(), max_length=OWED_MAX)


class OwedActs:
    """The acts that go through one manager, with the file in the plan's folder."""

    def __init__(
        self, folder: Path, client: NmxClient, wall: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._file = folder / FILE
        self._client = client
        self._wall = wall

    async def make(self, act: PartitionAct) -> Blocker | None:
        """Store an act, send it, follow it, and prove it by the listing; return why it is not."""
        sent = OwedAct(act=act, at=self._wall())

        async def note(fate: Fate, operation: str) -> None:
            nonlocal sent
            if fate is Fate.SO:
                await self._change(lambda acts: [a for a in acts if not _ends(act, a.act)])
            elif fate is Fate.VOID:
                await self._swap(sent, _void(sent))
            else:
                told = {"operation": operation or UNNAMED, "completed": fate is Fate.COMPLETED}
                before = sent
                sent = sent.model_copy(update=told)
                await self._swap(before, sent)

        def begin(acts: Sequence[OwedAct]) -> Sequence[OwedAct]:
            nonlocal sent
            before = [one for one in acts if one.act == act]
            taken = any(one.taken or one.operation for one in before)
            sent = sent.model_copy(update={"again": bool(before), "taken": taken})
            return [*(one for one in acts if one.act != act), sent]

        try:
            await self._change(begin)
            return await self._client.make(act, note)
        except (InputError, OSError) as error:
            return self._refuse_file(error)

    async def settle(
        self, concerns: Callable[[PartitionAct, Sequence[Gpu]], bool], leaves: str = ""
    ) -> Blocker | None:
        """Return which act is not listed yet: whoever it concerns sends nothing and counts as
        nowhere. `leaves`: the name of who is to be in no partition.

        Raises PortError.
        """
        try:
            owed = await asyncio.to_thread(self._load)
            gpus, partitions = await self._client.look() if owed else ((), ())
            for one in (one for one in owed if concerns(one.act, gpus)):
                if is_so(one.act, partitions) or (
                    one.act.verb is Verb.CREATE and _is_within(one.act, partitions)
                ):
                    await self._swap(one, None)
                elif (known := await self._learn(one)) is not None:
                    held = await self._judge(known, partitions, leaves)
                    if held is not None:
                        return held
        except (InputError, OSError) as error:
            return self._refuse_file(error)
        return None

    async def _learn(self, one: OwedAct) -> OwedAct | None:
        """Ask for the end of an act whose sender died; None: the manager says that it failed."""
        known: OwedAct | None
        if one.completed or not one.operation:
            return one
        status = await self._client.read_status(one.operation)
        if status == "completed":
            known = one.model_copy(update={"completed": True})
            await self._swap(one, known)
            return known
        if status in ENDED:
            known = _void(one)
            await self._swap(one, known)
            return known
        return one

    async def _judge(
        self, one: OwedAct, partitions: Sequence[Partition], leaves: str
    ) -> Blocker | None:
        said = "completed it" if one.completed else "may have it"
        detail = f"the manager {said} and does not list it yet; nothing is sent for it"
        unblock = "It is looked for again by itself."
        left_s = UNLISTED_S - max(0.0, self._wall() - one.at)
        if not leaves:  # one that is asked for twice is refused by a manager that has it
            more = f" for {left_s / 60:.0f} minutes more"
            waits = one.completed and left_s > 0
            return _refuse(one, detail + more, unblock) if waits else None
        if one.act.verb is Verb.DELETE or _is_within(one.act, partitions):
            return None
        if left_s <= 0 and not (one.operation or one.taken):
            return None  # no answer to it was ever seen; the looks behind this tell
        if leaves in await asyncio.to_thread(read_vouched, self._folder, one.mark):
            return None
        unblock += (
            " If it never comes, take its GPUs out of every partition by hand, and say so: "
            f"`provisioner rack vouch {self._folder} {one.mark} {leaves} --who YOU --why REASON`."
        )
        return _refuse(one, detail, unblock)

    def _load(self) -> tuple[OwedAct, ...]:
        return read_record(self._file, OwedFile).acts if self._file.exists() else ()

    async def _swap(self, one: OwedAct, now: OwedAct | None) -> None:
        """Put a record in the place of one, unless that is gone or another one by now."""
        new = [] if now is None else [now]
        await self._change(
            lambda acts: [*(a for a in acts if a != one), *new] if one in acts else acts
        )

    async def _change(self, change: Callable[[Sequence[OwedAct]], Sequence[OwedAct]]) -> None:
        """Change the file, which is on the disk when this returns. Raises InputError, OSError."""

        def keep() -> None:
            busy = InputError(str(self._file), "", "another command holds it", "Wait for its end.")
            lock = self._file.with_name(f".{FILE}.lock")
            with hold_name(lock, busy, TRIES, shared=True):  # of the daemon, and of people
                acts = self._load()
                kept = tuple(change(acts))
                if len(kept) > OWED_MAX:
                    problem = f"{OWED_MAX} acts are not listed by the manager"
                    raise InputError(str(self._file), "", problem, "Look at the manager.")
                if kept != acts:
                    written = OwedFile(acts=kept).model_dump_json(indent=1) + "\n"
                    replace_file(self._file, written, mode=0o666, lasting=True)

        await asyncio.to_thread(keep)

    def _refuse_file(self, error: Exception) -> Blocker:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=str(self._file),
            detail=f"what was asked of the manager is not kept, and nothing is sent: {error}"[:300],
            unblock="Mend the file, and who may write it.",
        )


def _void(one: OwedAct) -> OwedAct | None:
    """Return what is left of an act that came to nothing: where it was sent before, that."""
    return one.model_copy(update={"operation": "", "completed": False}) if one.again else None


def _is_within(act: PartitionAct, partitions: Iterable[Partition]) -> bool:
    """Return whether a list has all members of an act in its partition."""
    return any(one.name == act.name and act.members <= (one.members or set()) for one in partitions)


def _ends(shown: PartitionAct, before: PartitionAct) -> bool:
    """Return whether an act that is listed tells the end of one that was sent before."""
    later = before.verb is not Verb.CREATE or before.members <= shown.members
    return shown.name == before.name and later


def _refuse(one: OwedAct, detail: str, unblock: str) -> Blocker:
    return Blocker(
        reason=Reason.CANNOT_TELL, subject=f"{one.act}", detail=detail[:300], unblock=unblock
    )
