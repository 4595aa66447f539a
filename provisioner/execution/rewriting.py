"""Writes firmware once more between two tenants, and reads afterwards that it runs.

It is done when nothing is left on the drives, and while the maintenance image runs. Writes and
restarts of BMCs go through the executor; the one reset at the end is an AC cycle, or nothing but
the next boot of the image, which takes the host's power away anyway. Rows of the ledger say how far
it came, and their reasons name the stay, so that no other one takes them for its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site, do_work
from provisioner.execution.executor import Executor
from provisioner.execution.steps.activations import (
    build_bare_cycle,
    build_bare_pause,
    explain_no_ac_cycle,
    find_cut_outlets,
    restore_power,
)
from provisioner.execution.steps.agent_steps import find_last, find_open
from provisioner.execution.steps.card_storage import wipe_cards
from provisioner.execution.steps.erasure import Eraser
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.execution.steps.quiet import wait_until_settled
from provisioner.model.erasure import ErasurePolicy, ErasureRecord, Holder, Method, Result
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Step, StepKind
from provisioner.planning.erasure.erasure import NOT_OFFERED, not_done
from provisioner.planning.erasure.rewriting import (
    BUNDLE,
    Rewriting,
    Writer,
    build_reset,
    find_wrong_versions,
    plan_rewriting,
)
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.path.history import read_slots
from provisioner.ports import PortError

RESET = "reset after rewriting"
PROOF = "firmware rewritten"
ATTEMPTS_MAX = 2  # of one write in one operation; a transfer may break with our own daemon
Problems = dict[tuple[str, str], str]  # (kind, slot): why it was not written
_RECORDS = TypeAdapter(tuple[ErasureRecord, ...])


class Rewriter:
    """The eraser calls it for one node at a time."""

    def __init__(
        self, site: Site, policy: ErasurePolicy, matrix: Matrix, executor: Executor
    ) -> None:
        self._site = site
        self._policy = policy
        self._matrix = matrix
        self._executor = executor

    async def recover_power(self, stay: Stay) -> Blocker | None:
        """Give a host its power back that an interrupted reset of this stay took."""
        entry = find_open(await stay.hold.list_entries(), RESET)
        if entry is None or not find_cut_outlets(entry):
            return None
        try:
            if (off := await restore_power(self._site, stay.node, entry)) is not None:
                return off
        except PortError as error:
            return blocked(error, f"{stay.node.id}/host")
        interrupted = "interrupted while its outlets were switched; they are on again"
        await stay.hold.settle_entry(entry, ActionStatus.ABSENT, outcome=interrupted)
        return None

    async def rewrite(self, stay: Stay) -> Sequence[ErasureRecord] | Blocker:
        """Return a record for each component; the image runs again. A Blocker: it is gone on with
        later.
        """
        if not self._policy.rewrites:
            now = self._site.clock.now()
            return [not_done(Holder.FIRMWARE, "host", NOT_OFFERED[Holder.FIRMWARE], now)]
        rows = await stay.hold.list_entries()
        if (proved := _proved(rows, stay)) is not None:
            return proved
        try:
            return await self._rewrite(stay)
        except PortError as error:
            return blocked(error, f"{stay.node.id}/firmware")

    async def _rewrite(self, stay: Stay) -> Sequence[ErasureRecord] | Blocker:
        began_at = self._site.clock.now()
        writers = await self._list_writers(stay)
        if isinstance(writers, Blocker):
            return writers
        no_cycle = await explain_no_ac_cycle(self._site, stay.node)
        plan = plan_rewriting(
            self._policy.rewrites,
            stay.node,
            stay.inventory,
            self._matrix,
            writers,
            no_ac_cycle=no_cycle,
        )
        storage = await self._wipe_cards(stay, plan)
        if isinstance(storage, Blocker):
            return storage
        problems: Problems = {}
        for step in plan.steps:
            waits = await self._carry_out(stay, step, problems)
            if waits is not None:
                return waits
        if (waits := await self._activate(stay, plan, problems)) is not None:
            return waits
        after = await self._read(stay)
        records = (*storage, *self._record(plan, problems, after, began_at))
        await _keep_proof(stay, records)
        return records

    async def _wipe_cards(self, stay: Stay, plan: Rewriting) -> Sequence[ErasureRecord] | Blocker:
        """Wipe the cards whose bundle is planned; it is written on storage with nothing on it."""
        if not self._policy.card_storage:
            return ()
        bundles = [w for w in plan.list_writes() if w.component == BUNDLE]
        return await wipe_cards(stay, {slot for write in bundles for slot in write.slots})

    async def _list_writers(self, stay: Stay) -> dict[str, Writer] | Blocker:
        writers = {}
        for bmc in stay.node.bmcs:
            client = await self._site.reach.redfish(stay.node, bmc.name)
            if isinstance(client, Blocker):
                return client
            quirk = client.quirk
            writers[bmc.name] = Writer(quirk.title, quirk.force != "none")
        return writers

    async def _carry_out(self, stay: Stay, step: Step, problems: Problems) -> Blocker | None:
        """Do a step on the slots that it was not done on; return what passes by itself."""
        step = _leave_out(step, problems)
        if step.kind is StepKind.ACTIVATE and not step.activates:
            return None  # nothing was written
        for _ in range(ATTEMPTS_MAX):
            left = _list_left(await stay.hold.list_entries(), step, stay)
            if left.is_done or left.failures >= ATTEMPTS_MAX:
                break
            chosen = step.model_copy(update={"slots": left.slots})
            failed = await self._executor.execute(stay.hold, stay.node, chosen, stay.inventory)
            if passing := [b for b in failed if b.reason in PASSING]:
                return passing[0]
            after = _list_left(await stay.hold.list_entries(), step, stay)
            if failed and after.failures == left.failures:  # refused before anything was sent
                _note(problems, step, after.slots, "; ".join(b.detail for b in failed))
                return None
        left = _list_left(await stay.hold.list_entries(), step, stay)
        if not left.is_done:
            _note(problems, step, left.slots, left.outcome or "it did not end well")
        return None

    async def _activate(self, stay: Stay, plan: Rewriting, problems: Problems) -> Blocker | None:
        """Reset once for everything that was written and waits; the image runs afterwards."""
        waiting = [
            (f"{write.component}/{slot}", write.to_version)
            for write in plan.list_writes()
            for slot in write.slots
            if write.activation not in (Activation.NONE, Activation.BMC_RESET)
            and (write.component, slot) not in problems
        ]
        if not waiting:
            return None
        label = "what was written once more is activated"
        step = build_reset(stay.node, plan.reset, waiting, label)
        mine = [
            r
            for r in await stay.hold.list_entries()
            if r.action == RESET and r.before.get("visit") == stay.node.fenced_at
        ]
        done = find_last(mine, RESET)
        if done is None or done.status is not ActionStatus.CONFIRMED:
            before = {"visit": stay.node.fenced_at, "step": step.model_dump(mode="json")}
            build = build_bare_cycle if plan.reset is Activation.AC_CYCLE else build_bare_pause
            work = await build(self._site, stay.node, RESET, before)
            if isinstance(work, Blocker):
                return work
            refused = await do_work(self._site, stay.hold, work, find_open(mine, RESET))
            if refused is not None:
                return refused
            done = find_last(await stay.hold.list_entries(), RESET)
            assert done is not None
        stay.since = max(stay.since, done.settled_at)
        agent = await stay.enter_image()
        if isinstance(agent, Blocker):
            return agent
        limit_s = self._site.settings.bmc_return_limit_s
        return await wait_until_settled(self._site, stay.node, limit_s)

    async def _read(self, stay: Stay) -> Inventory:
        """Return the versions that run now, as every BMC of the node reports them."""
        components: list[Component] = []
        for bmc in stay.node.bmcs:
            client = await self._site.reach.redfish(stay.node, bmc.name)
            if isinstance(client, Blocker):
                continue
            read = await client.read_firmware(stay.node.id, bmc.name)
            components += read.components
        return stay.inventory.model_copy(update={"components": tuple(components)})

    def _record(
        self, plan: Rewriting, problems: Problems, after: Inventory, began_at: float
    ) -> tuple[ErasureRecord, ...]:
        now = self._site.clock.now()
        records = [
            ErasureRecord(
                holder=Holder.FIRMWARE,
                device=refusal.device,
                result=Result.UNSUPPORTED,
                detail=f"{refusal.version}: {refusal.why}" if refusal.version else refusal.why,
                started_at=began_at,
                ended_at=now,
            )
            for refusal in plan.refused
        ]
        for write in plan.list_writes():
            for slot in write.slots:
                wrong = problems.get((write.component, slot), "")
                wrong = wrong or find_wrong_versions(write, slot, after, self._matrix)
                reset = write.activation if write.activation is Activation.BMC_RESET else plan.reset
                detail = f"{write.to_version} was written over itself, ran after {reset}"
                records.append(
                    ErasureRecord(
                        holder=Holder.FIRMWARE,
                        device=f"{write.component}/{slot}",
                        method=Method.REWRITTEN,
                        result=Result.NOT_DONE if wrong else Result.DONE,
                        detail=wrong[:400] if wrong else f"{detail}, and is reported now",
                        started_at=began_at,
                        ended_at=now,
                    )
                )
        if not records:
            why = "the node shows none of the parts that `erase_rewrites` names"
            return (not_done(Holder.FIRMWARE, "host", why, now),)
        return tuple(records)


@dataclass(frozen=True, slots=True)
class _Left:
    """The slots of a step that no row says are done, and how often they failed here."""

    slots: tuple[str, ...]
    failures: int
    outcome: str
    is_done: bool


def _list_left(rows: Sequence[LedgerEntry], step: Step, stay: Stay) -> _Left:
    mine = [r for r in rows if r.before.get("step", {}).get("reason") == step.reason]
    done = [r for r in mine if r.status is ActionStatus.CONFIRMED]
    failed = [
        r for r in mine if r.status is ActionStatus.FAILED and r.operation == stay.hold.operation.id
    ]
    written = {slot for row in done for slot in read_slots(row)}
    left = tuple(slot for slot in step.slots if slot not in written)
    times = Counter(slot for row in failed for slot in read_slots(row) or ("",))
    is_write = step.kind is StepKind.UPDATE
    return _Left(
        slots=left,
        failures=max(times.values(), default=0),
        outcome=failed[-1].outcome if failed else "",
        is_done=not left if is_write else bool(done),
    )


def _note(problems: Problems, step: Step, slots: Sequence[str], why: str) -> None:
    if step.kind is StepKind.UPDATE:
        problems |= {(step.component, slot): why for slot in slots}
    else:
        problems |= {_split(name): why for name, _ in step.activates}


def _leave_out(step: Step, problems: Problems) -> Step:
    """Return an activation without the versions that were not written."""
    activates = tuple(a for a in step.activates if _split(a[0]) not in problems)
    return step.model_copy(update={"activates": activates})


def _split(name: str) -> tuple[str, str]:
    kind, _, slot = name.partition("/")
    return (kind, slot)


def _proved(rows: Sequence[LedgerEntry], stay: Stay) -> tuple[ErasureRecord, ...] | None:
    """Return the records of this stay: what is all done, or was ended in this operation."""
    mine = [r for r in rows if r.action == PROOF and r.before.get("visit") == stay.node.fenced_at]
    row = find_last(mine, PROOF)
    if row is None or not row.outcome:
        return None
    ended_here = row.operation == stay.hold.operation.id
    if row.status is ActionStatus.CONFIRMED or ended_here:
        return _RECORDS.validate_json(row.outcome)
    return None


async def _keep_proof(stay: Stay, records: Sequence[ErasureRecord]) -> None:
    row = await stay.hold.record_intent(PROOF, {"visit": stay.node.fenced_at})
    done = all(r.result is not Result.NOT_DONE for r in records)
    status = ActionStatus.CONFIRMED if done else ActionStatus.FAILED
    await stay.hold.settle_entry(row, status, outcome=_RECORDS.dump_json(tuple(records)).decode())


def build_eraser(site: Site, policy: ErasurePolicy, matrix: Matrix, executor: Executor) -> Eraser:
    """Return the eraser of a site, which has firmware written once more where the policy asks."""
    return Eraser(site, policy, Rewriter(site, policy, matrix, executor))
