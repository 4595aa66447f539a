"""Wipes the storage of BlueFields between two tenants, before their bundle is written again.

The orders wait for the card's start, which the next boot of the maintenance image brings: it takes
the host's power away. Afterwards the card is watched for as long as its system needs to start. Rows
of the ledger say how far it came; a daemon that died goes on there, and nothing is wiped twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.settings.bmc_writes import (
    WipeOrders,
    order_wipe,
    read_wipe_orders,
)
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Work, do_work
from provisioner.execution.steps.agent_steps import find_last, find_open, record_outcome
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.node import BmcRef
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.planning.erasure.bmc_defaults import explain_no_wipe, judge_wipe
from provisioner.planning.erasure.erasure import not_done
from provisioner.planning.lifecycle.destruction import Destruction

ORDER = "card storage wipe"
PROOF = "card storage proved"
CARDS = ("dpu", "supernic")  # kinds of BMCs
# a BlueField-3's system runs some three minutes after its power (docs/sources/redfish.md#bf-times)
START_S = 600.0


async def wipe_cards(stay: Stay, followed: Collection[str]) -> Sequence[ErasureRecord] | Blocker:
    """Return a record of each card; the image runs again. A Blocker: it is gone on with later.

    `followed`: names of the cards whose bundle is written next. May raise `PortError`.
    """
    records: list[ErasureRecord] = []
    ordered: list[tuple[BmcRef, Redfish, LedgerEntry]] = []
    for bmc in (b for b in stay.node.bmcs if b.kind in CARDS):
        begun = await _begin(stay, bmc, followed)
        if isinstance(begun, Blocker):
            return begun
        if isinstance(begun, ErasureRecord):
            records.append(begun)
        else:
            ordered.append((bmc, *begun))
    if not ordered:
        return records
    stay.since = max(stay.since, *(sent.settled_at for _, _, sent in ordered))
    agent = await stay.enter_image()
    if isinstance(agent, Blocker):
        return agent
    return [*records, *await _watch(stay, ordered)]


async def _begin(
    stay: Stay, bmc: BmcRef, followed: Collection[str]
) -> tuple[Redfish, LedgerEntry] | ErasureRecord | Blocker:
    """Return the order of this stay that is to be judged, or the card's record."""
    order = f"{ORDER} {bmc.name}"
    rows = await stay.hold.list_entries()
    mine = [r for r in rows if r.before.get("visit") == stay.node.fenced_at]
    judged = find_last(mine, f"{PROOF} {bmc.name}")
    sent = find_last(mine, order)
    if judged is not None and judged.outcome:
        if judged.status is ActionStatus.CONFIRMED or judged.operation == stay.hold.operation.id:
            return ErasureRecord.model_validate_json(judged.outcome)
        if sent is not None and sent.settled_at <= judged.intended_at:
            sent = None  # it failed in an earlier operation: once more
    client = await stay.site.reach.redfish(stay.node, bmc.name)
    if isinstance(client, Blocker):
        return client
    if sent is not None and sent.status is ActionStatus.CONFIRMED:
        return client, sent
    orders = await read_wipe_orders(client.service)
    why = explain_no_wipe(bmc.name, orders.offered, followed)
    if not why:
        work = _order(stay, order, client, orders)
        refused = await do_work(stay.site, stay.hold, work, find_open(mine, order))
        if refused is None:
            entry = find_last(await stay.hold.list_entries(), order)
            assert entry is not None
            return client, entry
        why = refused.detail[:400]
    record = not_done(Holder.BLUEFIELD_STORAGE, bmc.name, why, stay.site.clock.now())
    return record.model_copy(update={"serial": bmc.serial})


def _order(stay: Stay, name: str, client: Redfish, orders: WipeOrders) -> Work:
    async def look() -> Snapshot | Blocker:
        now = await read_wipe_orders(client.service)
        return {"waiting": list(now.waiting)}

    async def send() -> Sent | Blocker:
        refused = await order_wipe(client.service, orders)
        return refused if refused is not None else Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None  # the card's start carries it out

    act = Act(
        name=name,
        before={"visit": stay.node.fenced_at, "orders": list(orders.offered)},
        look=look,
        send=send,
        happened=lambda _before, now: set(now.get("waiting", ())) == set(orders.offered),
        destroys=Destruction.CARD_STORAGE,
    )
    return Work(act=act, finish=finish)


async def _watch(
    stay: Stay, ordered: Sequence[tuple[BmcRef, Redfish, LedgerEntry]]
) -> list[ErasureRecord]:
    """Read how far the cards boot, until their systems would run; then judge and record."""
    clock = stay.site.clock
    began_at = clock.now()
    states: dict[str, list[str | None]] = {bmc.name: [] for bmc, _, _ in ordered}
    while True:
        for bmc, client, _ in ordered:
            states[bmc.name].append(await client.boot_progress())
        left_s = began_at + START_S - clock.now()
        if left_s <= 0:
            break
        await clock.sleep(min(stay.site.settings.poll_s, left_s))
    records = []
    for bmc, client, sent in ordered:
        names = [str(name) for name in sent.before.get("orders", ())]
        now = await read_wipe_orders(client.service)
        result, detail = judge_wipe(names, now.waiting, states[bmc.name], START_S)
        record = ErasureRecord(
            holder=Holder.BLUEFIELD_STORAGE,
            device=bmc.name,
            serial=bmc.serial,
            method=Method.CARD_WIPED if result is Result.DONE else Method.NONE,
            result=result,
            detail=detail,
            started_at=sent.intended_at,
            ended_at=clock.now(),
        )
        status = ActionStatus.CONFIRMED if result is Result.DONE else ActionStatus.FAILED
        about = {"visit": stay.node.fenced_at}
        name = f"{PROOF} {bmc.name}"
        await record_outcome(stay.hold, name, about, status, record.model_dump_json())
        records.append(record)
    return records
