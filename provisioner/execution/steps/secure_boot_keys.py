"""Compares the keys of Secure Boot between two tenants, and has the factory's restored on demand.

Keys are restored only where the site requires it and something differs: it takes a boot, which
carries the request out. A system whose keys are in order is read, and boots no more than before.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.once import Act, Sent, Snapshot, blocked
from provisioner.execution.actions.work import Work, do_work
from provisioner.execution.steps.agent_steps import find_last, find_open
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.erasure import ErasureRecord, Method, Result
from provisioner.model.node import BmcRef
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.planning.erasure.secure_boot_keys import (
    Verdict,
    explain_no_restoring,
    judge_keys,
    record_keys,
)
from provisioner.ports import PortError

RESET = "Secure Boot keys to defaults"


async def check_keys(stay: Stay, *, required: bool) -> list[ErasureRecord] | Blocker:
    """Return records of each BMC's system. Silence ends the turn where the site requires them."""
    records: list[ErasureRecord] = []
    for bmc in stay.node.bmcs:
        try:
            client = await stay.site.reach.redfish(stay.node, bmc.name)
            if isinstance(client, Blocker):
                refused = client
            else:
                checked = await _check(stay, bmc, client, required=required)
                if not isinstance(checked, Blocker):
                    records += checked
                    continue
                return checked  # of the boot that restores the keys
        except PortError as error:
            refused = blocked(error, f"{stay.node.id}/{bmc.name}")
            if required:
                return refused
        verdict = (f"{bmc.name} Secure Boot", Result.NOT_DONE, f"not read: {refused.detail}"[:400])
        records.append(record_keys(verdict, Method.NONE, stay.site.clock.now()))
    return records


async def _check(
    stay: Stay, bmc: BmcRef, client: Redfish, *, required: bool
) -> list[ErasureRecord] | Blocker:
    own = stay.site.settings.secure_boot_keys_expected
    reset = await _find_reset(stay) if bmc.kind == "host" and required else None
    keys = await client.read_secure_boot_keys()
    verdicts = list(judge_keys(bmc.name, keys, own))
    if reset is None and required and bmc.kind == "host":
        why = explain_no_restoring(keys, verdicts, own)
        if not why:
            asked_for = await _restore(stay, client)
            if isinstance(asked_for, Blocker):
                why = asked_for.detail
            else:
                reset = asked_for
        verdicts = [_explain(v, why) for v in verdicts]
    method = Method.COMPARED
    if reset is not None:
        stay.since = max(stay.since, reset.settled_at)
        agent = await stay.enter_image()
        if isinstance(agent, Blocker):
            return agent
        verdicts = list(judge_keys(bmc.name, await client.read_secure_boot_keys(), own))
        method = Method.KEYS_RESTORED
    now = stay.site.clock.now()
    return [record_keys(verdict, method, now) for verdict in verdicts]


async def _find_reset(stay: Stay) -> LedgerEntry | None:
    """Return the request of this stay and operation, if it was accepted."""
    row = find_last(_list_mine(stay, await stay.hold.list_entries()), RESET)
    if row is None or row.status is not ActionStatus.CONFIRMED:
        return None
    return row if row.operation == stay.hold.operation.id else None


async def _restore(stay: Stay, host: Redfish) -> LedgerEntry | Blocker:
    async def look() -> Snapshot | Blocker:
        return {}

    async def send() -> Sent | Blocker:
        refused = await host.reset_secure_boot_keys()
        return refused if refused is not None else Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None  # the boot carries it out

    def repeat(_before: Snapshot, _now: Snapshot) -> bool:
        return False

    visit = {"visit": stay.node.fenced_at}
    act = Act(name=RESET, before=visit, look=look, send=send, happened=repeat)
    mine = _list_mine(stay, await stay.hold.list_entries())
    work = Work(act=act, finish=finish)
    refused = await do_work(stay.site, stay.hold, work, find_open(mine, RESET))
    if refused is not None:
        return refused
    row = find_last(await stay.hold.list_entries(), RESET)
    assert row is not None
    return row


def _list_mine(stay: Stay, rows: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    return [r for r in rows if r.before.get("visit") == stay.node.fenced_at]


def _explain(verdict: Verdict, why: str) -> Verdict:
    part, result, detail = verdict
    if result is not Result.NOT_DONE or not why:
        return verdict
    return part, result, f"{detail}; not restored: {why}"
