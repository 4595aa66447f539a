"""The legs in which others hurt the site: hands on ports, lapses during a release, lost writes.

A foreign hand puts a port of a node that is being proved into a customer's network, and a leaf
comes back with an old configuration; people exchange a drive of a certified host, and its
certificate is revoked while its ports move; the database is exchanged for a backup; a leaf is
misread, and nobody was exposed; the database is far, or half of the devices give the daemon no
answer. People answer where a person is asked. `port_judge.py` judges each
moment, what is here the end of a leg.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import sqlite3
from collections import Counter

from acts import repeated
from exchanged import exchanges
from hurt_world import HurtWorld
from port_judge import data_of
from returned import HOST, node_of
from test_hot_swaps import SLOT, swap_drive

from provisioner.integrations.sim.site.truth import find_switch_outages, find_violations
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.case import Case, Stage
from provisioner.model.node import Node, Placement, State, TenantData
from provisioner.model.operation import ActionStatus
from provisioner.model.recovery import Difference, Settlement
from provisioner.model.tenant import PortPlacement, Tenant
from provisioner.planning.lifecycle.operator_requests import reclaim_node, retry_node
from provisioner.planning.watch.high_water import adopted_proof, settle_by_word
from provisioner.ports import StaleWrite
from provisioner.store.repositories.recovery import SqlRecoveryRepository

FIRST, SECOND = ("blue", "BLUE"), ("red", "RED")  # tenants of the journey, with their VRFs
OLD_RAIL, HAND_RAIL = 0, 1
FAR_S = 0.75  # one way: a round trip of 1,500 ms, the slowest of `port_members`
CUT_S = 3600.0
CUT_OF_BMCS_S = 300.0  # of it
ANSWERS_MAX = 3  # how often people are asked in a leg


async def want(world: HurtWorld, name: str) -> None:
    """One tenant wants the host from now on; "": nobody does."""
    for tenant in await world.store.tenants.list():
        wanted = {"nodes_wanted": int(tenant.name == name)}
        await world.store.tenants.put(Tenant(**{**tenant.model_dump(), **wanted}))


async def take_back(world: HurtWorld) -> None:
    """An operator asks for the host; whoever has it left data on every disk."""
    back = reclaim_node(await node_of(world), world.clock.now())
    assert isinstance(back, Node)
    await world.store.nodes.save(back)


# --- hands on ports


async def begin_hands(world: HurtWorld) -> None:
    """The first tenant's node is taken back; database and leaf are kept as they are until then."""
    world.step = 0
    world.backup = sqlite3.connect(":memory:")
    world.judge.rows.backup(world.backup)
    world.old_startup = copy.deepcopy(_leaf(world, OLD_RAIL).startup)
    await want(world, "")
    world.judge.soil(FIRST[1])
    await take_back(world)


async def end_hands(world: HurtWorld) -> str | None:
    """A hand while it is proved, an old configuration while it waits for a person, a person."""
    node, case = await node_of(world), await world.store.cases.get_open(HOST)
    asked = case is not None and case.stage is Stage.HARDWARE
    if world.step == 0 and node.state is State.VALIDATING:
        _put_port(world, _leaf(world, HAND_RAIL), SECOND[1])
        world.step = 1
    elif world.step == 1 and asked:
        _restart_with_old(world, _leaf(world, OLD_RAIL))
        world.step = 2
    elif world.step >= 2 and asked and _all_fenced(world):
        assert case is not None
        if world.step >= 2 + ANSWERS_MAX:
            return f"people were asked again and again: {case.note}"
        work = exchanges(world, world.store.cases)
        answer = await work.record_return(case, "ada", "the cabling plan was wrong", [])
        assert isinstance(answer, Case), answer
        world.step += 1
    elif world.step < 3 and node.state is State.CERTIFIED:
        return "nobody was asked about the hand"
    elif world.step > 2 and case is None and node.state is State.CERTIFIED:
        return ""
    return None


def _leaf(world: HurtWorld, rail: int) -> Switch:
    return world.site.switches[world.site.places[HOST].name_leaf(rail)]


def _put_port(world: HurtWorld, switch: Switch, vrf: str) -> None:
    """A person applies a revision that is not saved; whoever is in that network uses the host."""
    interface = world.site.places[HOST].interface
    revision = switch.new_revision()
    revision.changes.append(((), {"interface": {interface: {"ip": {"vrf": vrf}}}}))
    switch.apply(revision, world.clock.now())
    world.judge.hand(switch, interface, vrf, world.clock.now())
    world.judge.soil(vrf)


def _restart_with_old(world: HurtWorld, switch: Switch) -> None:
    """A leaf comes back with what it started with when the node served."""
    switch.startup = copy.deepcopy(world.old_startup)
    switch.reboot(world.clock.now())
    world.judge.hand(switch, world.site.places[HOST].interface, FIRST[1], switch.down_until)


def _all_fenced(world: HurtWorld) -> bool:
    return all(h.fenced_at is not None for h in world.judge.hands)


async def judge_hands(world: HurtWorld, since: float) -> list[str]:
    """It was noticed, erased and certified anew."""
    wrong = await _sound(world, since)
    rows = await world.store.journal.list(limit=100_000)
    noted = [r for r in rows if r["kind"] == "trespass" and r["node"] == HOST]
    if len(world.judge.hands) != 2 or len(noted) < 2:
        wrong.append(f"{len(world.judge.hands)} hands, {len(noted)} trespasses in the journal")
    disks = world.site.machines[HOST].disks
    left = [s for s, d in disks.items() if d.content in (data_of(FIRST[1]), data_of(SECOND[1]))]
    return wrong + [f"{slot} was not erased" for slot in left]


# --- lapses


async def begin_lapses(world: HurtWorld) -> None:
    """A drive is exchanged, a tenant wants the host, and the certificate goes as ports move."""
    world.step = 0
    machine = world.site.machines[HOST]
    swap_drive(machine)
    machine.disks[SLOT].content = data_of("a stranger")
    world.judge.when_entered = lambda: _revoke(world)
    await want(world, SECOND[0])


def _revoke(world: HurtWorld) -> None:
    """A person revokes the certificate on which the release under way rests."""

    async def revoke() -> None:
        node = await node_of(world)
        await world.store.evidence.revoke(
            node.certificate, "an auditor asked for it", world.clock.now()
        )
        world.step += 1

    # no task of the daemon's: it goes on when the daemon dies
    loop = asyncio.get_running_loop()
    world.people = loop.create_task(revoke(), context=contextvars.Context())


async def end_lapses(world: HurtWorld) -> str | None:
    """Once it is the second tenant's."""
    node = await node_of(world)
    if node.state is State.RELEASED and node.tenant == SECOND[0]:
        return "" if world.step == 1 else f"revoked {world.step} times"
    return None


async def judge_lapses(world: HurtWorld, since: float) -> list[str]:
    """It was fenced and proved anew in between."""
    wrong = await _sound(world, since) + await _handed_over(world, SECOND)
    issued = world.judge.rows.execute(
        "SELECT count(*) FROM certificates WHERE issued_at > ?", (since,)
    ).fetchone()[0]
    if issued < 2:
        wrong.append(f"{issued} certificates: one for the other drive, one behind the revocation")
    return wrong


# --- lost writes


async def begin_restored(world: HurtWorld) -> None:
    """The daemon's database is the backup of two legs ago: the other tenant has the node."""
    world.step = 0
    world.judge.closed = True
    assert world.backup is not None
    world.lose_writes(world.backup)


async def end_restored(world: HurtWorld) -> str | None:
    """A person settles it; then the node goes to the first tenant, with everybody's word."""
    node, book = await node_of(world), world.store.recovery
    if world.step == 0 and await book.get_look_only():
        waiting = [d for d in await book.list_differences() if d.settled is None]
        for difference in waiting:
            await _adopt(world, book, difference)
        if not waiting and await book.get_surveyed_at():
            world.judge.closed = False
            await book.finish("ann", world.clock.now())
            world.step = 1
    elif world.step == 1:
        if (node.state, node.tenant) != (State.RELEASED, SECOND[0]):
            return f"{HOST} is {node.state} with '{node.tenant}' once all was settled"
        world.step = 2
        await want(world, FIRST[0])
        await take_back(world)
    elif world.step == 2 and node.state is State.RELEASED:
        return "" if node.tenant == FIRST[0] else f"{HOST} went to {node.tenant}"
    return None


async def _adopt(world: HurtWorld, book: SqlRecoveryRepository, difference: Difference) -> None:
    """A person looks at the leaves, and says that they are right."""
    node, now = await node_of(world), world.clock.now()
    assert difference.subject == HOST, difference
    changed = settle_by_word(node, difference, Settlement.ADOPT, now)
    assert isinstance(changed, Node), changed
    read = [
        PortPlacement(switch=p.switch, interface=p.interface, vrf=difference.vrf)
        for p in node.ports
    ]
    settled = {"settled": Settlement.ADOPT, "settled_by": "ann", "settled_at": now}
    proof = adopted_proof(changed, read, now)
    await book.settle(difference.model_copy(update=settled), changed, proof)


async def judge_restored(world: HurtWorld, since: float) -> list[str]:
    """It was noticed, nobody was cut off, and the next tenant got clean disks."""
    wrong = await _unharmed(world) + await _handed_over(world, FIRST)
    rows = await world.store.journal.list(limit=100_000)
    kinds = [r["kind"] for r in rows if float(r["at"]) >= since]
    return wrong + [
        f"{kind} is {kinds.count(kind)} times in the journal"
        for kind in ("look_only", "restored", "restore_settled")
        if kinds.count(kind) != 1
    ]


# --- misread


async def begin_misread(world: HurtWorld) -> None:
    """A leaf shows a port of a host that serves in no network: late, of old, or by half."""
    world.step = 0
    world.judge.soil(FIRST[1])
    interface = world.site.places[HOST].interface
    # written where it is read, and not as a move: the port itself stays where it is
    _leaf(world, HAND_RAIL).operational["interface"][interface]["ip"]["vrf"] = "default"


async def end_misread(world: HurtWorld) -> str | None:
    """It is fenced, a person finds nothing, and its tenant agrees to have it back as it is."""
    node = await node_of(world)
    if world.step == 0 and node.tenant_data is TenantData.ASKED:
        world.step = 1
    if world.step == 1 and node.tenant_data is TenantData.ASKED:
        kept = retry_node(node, world.clock.now(), tenant_data=TenantData.KEEP)
        if isinstance(kept, Node):  # else it is on the way into quarantine, or to its fence
            with contextlib.suppress(StaleWrite):
                await world.store.nodes.save(kept)
                world.step = 2
    elif world.step and node.state is State.RELEASED:  # unasked where the site keeps data anyway
        return "" if node.tenant == FIRST[0] else f"{HOST} went to {node.tenant}"
    return None


async def judge_misread(world: HurtWorld, since: float) -> list[str]:
    """Nobody could reach it, so every byte of its tenant is still there."""
    wrong = await _unharmed(world) + await _handed_over(world, FIRST)
    disks = world.site.machines[HOST].disks
    lost = [slot for slot, disk in disks.items() if disk.content != data_of(FIRST[1])]
    rows = await world.store.journal.list(limit=100_000)
    kinds = [r["kind"] for r in rows if float(r["at"]) >= since]
    if "taken_back" not in kinds:
        wrong.append("it was never taken back")
    return wrong + [f"{slot} was erased on one reading" for slot in lost]


# --- a daemon that is far from its database, or has no way to half of its devices


async def begin_slow(world: HurtWorld) -> None:
    """Each transaction takes a round trip; what is committed is not known here for half of it."""
    world.way_s = FAR_S
    await _change_hands(world, SECOND[0])


async def end_slow(world: HurtWorld) -> str | None:
    """Once it is the second tenant's."""
    node = await node_of(world)
    if node.state is not State.RELEASED or node.tenant != SECOND[0]:
        return None
    world.way_s = 0.0
    return ""


async def judge_slow(world: HurtWorld, since: float) -> list[str]:
    return await _sound(world, since) + await _handed_over(world, SECOND)


async def begin_reach(world: HurtWorld) -> None:
    """Half of the host's BMCs and of its leaves give no answer, while its tenant gives it back.

    The BMCs answer again first: it could be erased then, and nobody knows where its ports are.
    """
    names = sorted(url for url in world.services if url.startswith(f"https://{HOST}."))
    leaves = _half_of_leaves(world)
    world.transport.loss.silent = frozenset((*names[::2], *leaves))
    world.transport.loss.unanswered = 0
    world.step = 0
    await _change_hands(world, FIRST[0])
    world.cut_until = world.clock.now() + CUT_S


def _half_of_leaves(world: HurtWorld) -> tuple[str, ...]:
    return tuple(sorted({s.name for s in world.judge.leaves()})[::2])


async def end_reach(world: HurtWorld) -> str | None:
    """There is a way to all again, and it is the first tenant's."""
    left_s = world.cut_until - world.clock.now()
    if world.step == 0 and left_s <= CUT_S - CUT_OF_BMCS_S:
        world.transport.loss.silent = frozenset(_half_of_leaves(world))
        world.step = 1
    if world.step == 1 and left_s <= 0:
        world.transport.loss.silent = frozenset()
        world.step = 2
    node = await node_of(world)
    if world.step == 2 and node.state is State.RELEASED and node.tenant == FIRST[0]:
        return ""
    return None


async def judge_reach(world: HurtWorld, since: float) -> list[str]:
    """Nothing was erased, or given to anybody, while a part of its ports could not be read."""
    wrong = await _sound(world, since) + await _handed_over(world, FIRST)
    log = [e for e in world.site.machines[HOST].log if since <= e.time < since + CUT_S]
    early = [e.kind for e in log if "sanitize" in e.kind or "erase" in e.kind]
    wrong += [f"{kind} while half of its leaves gave no answer" for kind in early]
    if not world.transport.loss.unanswered:
        wrong.append("every request was answered")
    return wrong


async def _change_hands(world: HurtWorld, name: str) -> None:
    await want(world, name)
    await take_back(world)


# --- what must hold at the end of any of these legs


async def _sound(world: HurtWorld, since: float) -> list[str]:
    """Nothing was done oftener than the ledger accounts for; power is part of stays, not judged."""
    rows = [r for r in await world.store.operations.list_entries(HOST) if r.intended_at >= since]
    wrong = [w for w in repeated(world.site, HOST, rows, since) if ": off was" not in w]
    log = [e for e in world.site.machines[HOST].log if e.time >= since]
    images = sum(e.kind == "image_start" for e in log)
    sent = sum(r.action.startswith("host.os") for r in rows if r.status is not ActionStatus.ABSENT)
    if images > sent:
        wrong.append(f"{images} images were written, the ledger accounts for {sent}")
    erased = Counter(
        (r.action, r.before.get("visit"))
        for r in rows
        if r.action.startswith("erase") and r.status is ActionStatus.CONFIRMED
    )
    wrong += [f"{a} is confirmed {n} times in one stay" for (a, _), n in erased.items() if n > 1]
    return wrong + await _unharmed(world)


async def _unharmed(world: HurtWorld) -> list[str]:
    """As `World.violations`, but for what a daemon does while it has not seen a hand yet."""
    by_hand = [(h.at, h.fenced_at or float("inf")) for h in world.judge.hands]
    wrong = [
        str(v)
        for v in (*find_violations(world.site), *find_switch_outages(world.site))
        if v.kind != "in_customer_vrf" or not any(a <= v.time <= b for a, b in by_hand)
    ]
    if not (await world.store.journal.verify()).intact:
        wrong.append("the journal's chain is broken")
    for node in await world.store.nodes.list():
        if any(b.reason.value == "our_bug" for b in node.blockers):
            wrong.append(f"{node.id} was parked: {node.blockers[0]}")
    return wrong


async def _handed_over(world: HurtWorld, to: tuple[str, str]) -> list[str]:
    """With a handover that is recorded, on a certificate that is not revoked."""
    node, proof = await node_of(world), await world.store.evidence.get_proof(HOST)
    if (node.tenant, node.vrf, node.placement) != (*to, Placement.CUSTOMER):
        return [f"{HOST} is {node.placement} {node.vrf} of '{node.tenant}'"]
    if proof is None or (proof.vrf, proof.certificate) != (node.vrf, node.certificate):
        return [f"{HOST} has no proof of its handover"]
    revoked = await world.store.evidence.is_revoked(node.certificate)
    return [f"{HOST} serves with a revoked certificate"] * revoked
