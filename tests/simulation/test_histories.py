"""Histories of several daemons are judged, and the judge finds what is planted in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import check_history
import pytest
import virtual_time
from history_check import check
from history_log import Certified, Entered, History, Intent, Settled, Taken, Undriven, Write
from history_world import SENT_WITHIN_S, ClusterWorld
from linear_log import record_effects, recorded_fence
from sqlalchemy import update

from provisioner.control.engine import cluster
from provisioner.control.engine.engine_shared import SharedEngine
from provisioner.execution.actions import once
from provisioner.execution.observe import rotation as switch_api
from provisioner.execution.steps import methods_switch_settings as switch_drain
from provisioner.execution.tenancy import leaf
from provisioner.execution.tenancy import vrf_fabric as leaf_config
from provisioner.store.rows import operation_rows
from provisioner.store.schema.schema import operations

PUSH = Write(11.0, "n1", "push", "a", "push", slot="DPU_0")
UPDATE = Intent(10.0, 100.0, "n1", "update bluefield.bundle DPU_0 to 2", ("DPU_0",), "a")
MOVE = Write(20.0, "leaf", "revision", "a", "new revision", holder="a", in_turn=True)
DRIVER = Taken(5.0, "n1", "a")
RELEASED = Entered(30.0, "n1", "leaf/swp1", "RED")
VALID = Certified("n1", 25.0, 90.0)


def history(**changes: Any) -> History:
    """A history without a fault, with these parts exchanged."""
    parts: dict[str, Any] = {
        "writes": [PUSH, MOVE],
        "taken": [DRIVER],
        "intents": [UPDATE],
        "entered": [RELEASED],
        "certified": [VALID],
    }
    return History(**(parts | changes))


def test_a_history_without_a_fault_has_no_anomaly():
    assert check(history(), 15.0) == []


PLANTED = {
    "a write without an intent": ({"intents": []}, "it has 0 open intents"),
    "a write with two": (
        {"intents": [UPDATE, replace(UPDATE, at=10.5)]},
        "it has 2 open intents",
    ),
    "a write after its intent was settled": (
        {"intents": [replace(UPDATE, until=10.5)]},
        "it has 0 open intents",
    ),
    "a write of another card": (
        {"writes": [replace(PUSH, slot="DPU_1")]},
        "it has 0 open intents",
    ),
    "a write outside of its window": (
        {"writes": [replace(PUSH, at=40.0)]},
        "30.0 s after its intent",
    ),
    "a write by another than who intended": (
        {"writes": [replace(PUSH, writer="b")], "taken": [replace(DRIVER, writer="b")]},
        "its intent is a's",
    ),
    "the same write twice": (
        {"writes": [PUSH, replace(PUSH, at=11.5)]},
        "for the second time within one intent",
    ),
    "a node that nobody drives": ({"taken": []}, "which nobody drove"),
    "a driver that was replaced": (
        {"taken": [DRIVER, Taken(9.0, "n1", "b")]},
        "which b has driven since 9.0",
    ),
    "two drivers that interleave": (
        {
            "taken": [DRIVER, Taken(10.9, "n1", "b")],
            "writes": [Write(10.95, "n1", "play", "b", "host"), PUSH],
        },
        "which b has driven since 10.9",
    ),
    "a switch's write outside of a turn": (
        {"writes": [replace(MOVE, in_turn=False)]},
        "outside of any turn",
    ),
    "a switch's write in another's turn": (
        {"writes": [replace(MOVE, holder="b")]},
        "in the turn of b",
    ),
    "a revision within another": (
        {"writes": [replace(MOVE, under_way=("7",))]},
        "while revision 7 was being applied",
    ),
    "a dead daemon's late write": (
        {"writes": [replace(MOVE, holder="")], "ended": {"a": 18.0}},
        "2.0 s after its end",
    ),
    "a write after the lease": (
        {"ended": {"a": 10.0}},
        "1.0 s after its lease had ended",
    ),
    "an intent of a replaced driver": (
        {"taken": [DRIVER, Taken(9.0, "n1", "b")]},
        "intended update bluefield.bundle DPU_0 to 2 of n1, which b has driven since 9.0",
    ),
    "a successor that did not wait": (
        {"settled": [Settled(20.0, "n1", "update x", "b", 10.0, "a")]},
        "b judged update x of n1 10.0 s after a had intended it",
    ),
    "an operation without a driver": (
        {"undriven": [Undriven("n1", "n1#1", 10.0, 140.0)]},
        "operation n1#1 of n1 had no driver from 10.0 to 140.0",
    ),
    "an entry without a certificate": ({"certified": []}, "without a valid certificate"),
    "an entry after the revocation": (
        {"certified": [replace(VALID, until=29.0)]},
        "without a valid certificate",
    ),
    "an entry of a port that is nobody's": (
        {"entered": [replace(RELEASED, node="")]},
        "of no node entered RED",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_anomaly_is_found(planted):
    changes, words = PLANTED[planted]

    found = check(history(**changes), 15.0)

    assert any(words in sentence for sentence in found), found


def lived(seeds: range, branches: int) -> list[str]:
    """The anomalies of some trunks with their branches."""
    found: list[str] = []
    for seed in seeds:
        for told in check_history.grow((seed, branches, None)):
            found += told["anomalies"]
    return found


def test_a_history_of_two_daemons_has_no_anomaly():
    [branch, _] = check_history.grow((0, 1, 0))  # its trunk goes no further than to the fork

    assert branch["anomalies"] == []
    assert branch["writes"]


@pytest.mark.long
def test_some_histories_of_two_and_three_daemons_have_no_anomaly():
    assert lived(range(2), 1) == []  # a trunk of each, with one branch


@pytest.mark.long
def test_more_histories_of_two_and_three_daemons_have_no_anomaly():
    assert lived(range(4), 2) == []


@asynccontextmanager
async def no_turn(_switch: str) -> AsyncIterator[None]:
    """A turn that nobody waits for."""
    yield


async def undisturbed(tmp_path: Path) -> list[str]:
    world = ClusterWorld(tmp_path, 1, members=2, lost=0.0)
    await world.take_in()
    await world.start_members()
    await world.run(1200.0)
    await world.end()
    return check(world.history, SENT_WITHIN_S)


@contextmanager
def ignored(_check: Any) -> Iterator[None]:
    """A permit that asks for no lease."""
    yield


def without_fence(connection: Any, operation: Any) -> Any:
    """`operation_rows.fence` that writes whatever the row has."""
    version = operation.version + 1
    values = {"status": str(operation.status), "phase": operation.phase, "note": operation.note}
    row = update(operations).where(operations.c.id == operation.id)
    connection.execute(row.values(version=version, **values))
    return operation.model_copy(update={"version": version})


class Hasty:
    """A clock whose waits are over at once."""

    def __init__(self, clock: Any) -> None:
        self.now = clock.now

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)


async def not_adopting(_engine: Any) -> None:
    """The engine's loops that look for the operations of dead daemons, without looking."""
    await asyncio.Event().wait()


def plant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove one protection."""
    if name == "the permit ignores the lease":
        monkeypatch.setattr(cluster.permit, "require_check", ignored)
    elif name == "no fence of epochs":
        record_effects()  # of the true one, which comes back
        monkeypatch.setattr(operation_rows, "fence", recorded_fence(without_fence))
    elif name == "no wait for the predecessor":
        resolve = once._resolve
        monkeypatch.setattr(
            once, "_resolve", lambda hold, clock, *given: resolve(hold, Hasty(clock), *given)
        )
    else:
        assert name == "nobody takes over"
        monkeypatch.setattr(SharedEngine, "_adopt", not_adopting)
        monkeypatch.setattr(SharedEngine, "_sweep", not_adopting)


# protection -> when its absence shows, what is done to the daemon then, and what the judge says
SIGNS = {
    "the permit ignores the lease": ("on_request", "stop", "after its lease had ended"),
    "no fence of epochs": ("on_intent", "stop", "epoch"),
    "no wait for the predecessor": ("on_intent", "kill", "had intended it"),
    "nobody takes over": ("on_intent", "kill", "had no driver from"),
}
APART_S = 60.0  # between two blows
STOPPED_S = 25.0  # past the lease, and until a peer has begun


async def struck(tmp_path: Path, moment: str, blow: str) -> list[str]:
    """Return the anomalies of a history in which daemons are struck at the moments that hurt."""
    world = ClusterWorld(tmp_path, 1, members=2, lost=0.0)
    await world.take_in()
    await world.start_members()
    struck_at = [world.clock.now()]

    def strike(writer: str) -> None:
        [member] = [m for m in world.members.values() if m.name == writer] or [None]
        if member is None or world.clock.now() - struck_at[-1] < APART_S:
            return
        struck_at.append(world.clock.now())
        if blow == "kill":
            member.gate.end("killed")
        else:
            member.gate.stop()
            asyncio.get_running_loop().call_later(STOPPED_S, member.gate.go_on)

    setattr(world, moment, strike)
    await world.run(600.0)
    setattr(world, moment, lambda _writer: None)
    await world.run(60.0)
    await world.end()
    assert len(struck_at) > 1, "nothing happened"
    return check(world.history, SENT_WITHIN_S)


@pytest.mark.parametrize(("moment", "blow"), sorted({(m, b) for m, b, _ in SIGNS.values()}))
def test_a_history_of_blows_at_the_moments_that_hurt_has_no_anomaly(tmp_path, moment, blow):
    assert virtual_time.run(struck(tmp_path, moment, blow)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", SIGNS)
def test_a_protection_that_is_removed_is_found_in_the_history_that_ci_runs(
    tmp_path, name, monkeypatch
):
    moment, blow, sign = SIGNS[name]
    plant(name, monkeypatch)

    found = virtual_time.run(struck(tmp_path, moment, blow))

    assert any(sign in sentence for sentence in found), found


def test_code_that_takes_no_turn_is_found(tmp_path, monkeypatch):
    for module in (leaf, leaf_config, switch_api, switch_drain):
        monkeypatch.setattr(module, "turn", no_turn)

    found = virtual_time.run(undisturbed(tmp_path))

    assert any("outside of any turn" in sentence for sentence in found)


def test_code_that_sends_without_an_intent_is_found(tmp_path, monkeypatch):
    async def blind(hold: Any, clock: Any, settings: Any, act: Any, entry: Any) -> Any:
        await act.send()
        return await send(hold, clock, settings, act)

    send = once._send
    monkeypatch.setattr(
        once, "_send", lambda hold, clock, settings, act: blind(hold, clock, settings, act, None)
    )

    found = virtual_time.run(undisturbed(tmp_path))

    assert any("it has 0 open intents" in sentence for sentence in found)


async def cut_from_the_devices(tmp_path: Path) -> tuple[float, str, list[str]]:
    """Return after how many seconds the peer drove all, why the other one ended, anomalies."""
    world = ClusterWorld(tmp_path, 1, members=2, lost=0.0)
    await world.take_in()
    await world.start_members()
    await world.run(60.0)
    leading = next(m for m in world.members.values() if m.cluster and m.cluster.leads)
    [peer] = (m for m in world.members.values() if m is not leading)
    for wire in leading.wires:
        wire.reaches = False
    began = world.clock.now()

    def drives_all() -> bool:
        rows = world.server.queue.values()
        return bool(peer.cluster and peer.cluster.leads) and all(r[1] == peer.name for r in rows)

    while not drives_all() and world.clock.now() < began + 300.0:
        await world.clock.sleep(1.0)
    took_s = world.clock.now() - began
    again = next(m for m in world.members.values() if m is not peer)
    for wire in again.wires:
        wire.reaches = True  # the next life had a way at once, and waits its minute
    await world.run(1200.0)
    await world.end()
    return took_s, leading.gate.why, check(world.history, SENT_WITHIN_S)


def test_a_daemon_that_reaches_the_database_but_no_device_hands_work_and_lead_over(tmp_path):
    took_s, why, anomalies = virtual_time.run(cut_from_the_devices(tmp_path))

    assert took_s < 73.0  # for so long six operations waited beside an idle peer
    assert "its work goes to its peers: 0 of" in why
    assert anomalies == []
