"""Several daemons on one PostgreSQL: killed, stopped, cut off, restarted; nothing is done twice.

Everything is a real process, and what was done to the hardware is told by the simulator. In CI a
small fleet is driven through its updates; `make test-ha` drives a large one to its release.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fleet import HOSTS, LEASE_S, Daemon, Fleet, fleet
from postgres_server import Server
from proxy import Cable

from provisioner.daemon.cluster import LOST
from provisioner.model.node import Node, State
from provisioner.model.recovery import DifferenceKind, Settlement
from provisioner.planning.watch.high_water import settle_by_word
from provisioner.store.repositories.recovery import SqlRecoveryRepository

# without a number of hosts: as few as can be, and only their updates
LIMIT_S = max(1800.0, 15.0 * HOSTS) if HOSTS else 240.0
# of an undisturbed host: ten cards and the tray are pushed to; one cold boot is off and on
PUSHES, POWER_ACTS = 11, 2
UPDATED = frozenset({State.VALIDATING, State.CERTIFIED, State.RELEASED})
FULL = pytest.mark.skipif(not HOSTS, reason="minutes of CPU time: make test-ha")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that keeps what it promised."""
    server = Server()
    try:
        server.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
            yield server
    finally:
        server.remove()


async def updated(there: Fleet) -> bool:
    """Every host is through its updates; in a full run, released."""
    wanted = {State.RELEASED} if HOSTS else UPDATED
    nodes = await there.nodes()
    assert not [str(n.blockers) for n in nodes if n.state is State.QUARANTINED]
    return all(n.state in wanted for n in nodes)


async def mid_flash(there: Fleet) -> Daemon:
    """The living daemon that has most pushes and resets under way now."""
    found: list[Daemon] = []

    async def some() -> bool:
        most = (await there.pushing()).most_common()
        owners = [(there.owner(executor), count) for executor, count in most]
        found[:] = [owner for owner, count in owners if owner is not None and count >= 2]
        return bool(found)

    await there.until(some, LIMIT_S, "something is being written")
    return found[0]


async def taken_over(there: Fleet, before: int) -> None:
    """Until a peer re-queued what a dead daemon was driving."""

    async def more() -> bool:
        return sum(d.said("took over") for d in there.daemons) > before

    await there.until(more, 120.0, "a peer takes over")


def adoptions(there: Fleet) -> int:
    return sum(d.said("took over") for d in there.daemons)


async def stands_still(there: Fleet, sleeper: Daemon, stop_s: float) -> None:
    """A daemon is stopped, replaced, continued, and finds out before it acts."""
    before, ended = adoptions(there), len(sleeper.ends)
    sleeper.send(signal.SIGSTOP)
    began = time.monotonic()
    await taken_over(there, before)  # while it stands still, and knows of nothing
    await asyncio.sleep(max(stop_s - (time.monotonic() - began), 0.0))
    sleeper.send(signal.SIGCONT)

    async def found_out() -> bool:
        return len(sleeper.ends) > ended

    await there.until(found_out, 120.0, "the stopped daemon finds out")


async def killed(there: Fleet) -> Daemon:
    """A daemon is killed in the middle of its writes, and replaced."""
    victim = await mid_flash(there)
    before = adoptions(there)
    victim.kill()
    await taken_over(there, before)
    return victim


async def lost_and_back(there: Fleet, server: Server) -> None:
    """The database ends in the middle of writes, and comes back."""
    await mid_flash(there)
    server.stop()  # immediate: as after a loss of power
    await asyncio.sleep(5.0)
    server.start()
    await there.reconnect()


async def rolled(there: Fleet) -> None:
    """Each daemon in its turn is restarted in the middle of writes; then all have their part."""
    for daemon in there.daemons:
        await mid_flash(there)
        daemon.stop()
        daemon.start()
    await evenly(there)


@asynccontextmanager
async def behind_a_cable(server: Server, folder: Path) -> AsyncIterator[tuple[Fleet, Cable]]:
    """A fleet whose first daemon reaches the database by a cable; all have their seats."""
    cable = Cable(server.port)
    await cable.open()
    ports = dict.fromkeys(range(3), 0) | {0: cable.port}
    try:
        async with fleet(server, folder, hosts=HOSTS, ports=ports) as there:
            await all_seated(there)
            yield there, cable
    finally:
        await cable.close()


async def loses_its_cable(there: Fleet, cut: Daemon, cable: Cable) -> None:
    """A daemon is cut off from the database while it writes something."""

    async def drives() -> bool:
        return any(there.owner(e) is cut for e in await there.pushing())

    await there.until(drives, LIMIT_S, "the daemon behind the cable writes something")
    before = adoptions(there)
    cable.cut()
    await taken_over(there, before)
    cable.mend()


async def evenly(there: Fleet) -> None:
    """Until every daemon has its part again: who starts last gets from those who have too many."""

    async def spread() -> bool:
        owners = await there.owners()
        active = sum(owners.values())
        return active < 6 or (len(owners) == 3 and max(owners.values()) <= active / 3 * 1.25 + 2)

    await there.until(spread, LIMIT_S, "the operations are spread evenly")


async def all_seated(there: Fleet) -> None:
    async def seated() -> bool:
        return all(d.said("serving") for d in there.daemons)

    await there.until(seated, LIMIT_S, "all daemons have their seats")


def judge(truth: dict[str, Any], takeovers: int = 1) -> None:
    """No act but those that a host needs when nothing disturbs it."""
    nodes = truth["nodes"]

    assert truth["violations"] == []
    # a card pulls its bundle from the daemon: one that dies breaks the transfer, which then failed
    pushes = {n: node["pushes"] - node["failed"] for n, node in nodes.items()}
    assert pushes == dict.fromkeys(nodes, PUSHES)
    # "off until it is off" is absolute: who takes over in its middle may ask for it once more
    most = POWER_ACTS + takeovers
    assert {n: a["power_acts"] for n, a in nodes.items() if a["power_acts"] > most} == {}


@FULL
def test_a_daemon_that_is_killed_and_one_that_is_stopped_do_nothing_twice(server, tmp_path):
    async def scenario() -> tuple[dict[str, Any], list[int]]:
        async with fleet(server, tmp_path, hosts=HOSTS or 2) as there:
            victim = await killed(there)
            sleeper = await mid_flash(there)
            await stands_still(there, sleeper, 60.0 if HOSTS else 2 * LEASE_S)
            victim.start()
            await there.until(lambda: updated(there), LIMIT_S, "every host is updated")
            return await there.truth(), sleeper.ends

    truth, ends = asyncio.run(scenario())

    judge(truth)
    assert ends == [LOST]


@FULL
def test_a_restart_of_the_database_under_load_loses_and_repeats_nothing(server, tmp_path):
    async def scenario() -> tuple[dict[str, Any], list[list[int]]]:
        async with fleet(server, tmp_path, hosts=HOSTS) as there:
            await lost_and_back(there, server)
            await there.until(lambda: updated(there), LIMIT_S, "every host is released")
            return await there.truth(), [d.ends for d in there.daemons]

    truth, ends = asyncio.run(scenario())

    judge(truth)
    assert all(codes and set(codes) == {LOST} for codes in ends), ends


@FULL
def test_a_daemon_that_is_cut_off_from_the_database_ends_and_is_replaced(server, tmp_path):
    async def scenario() -> tuple[dict[str, Any], list[int]]:
        async with behind_a_cable(server, tmp_path) as (there, cable):
            cut = there.daemons[0]
            await loses_its_cable(there, cut, cable)
            await there.until(lambda: updated(there), LIMIT_S, "every host is released")
            return await there.truth(), cut.ends

    truth, ends = asyncio.run(scenario())

    judge(truth)
    assert ends[0] == LOST


@FULL
def test_a_rolling_restart_with_operations_in_flight_repeats_nothing(server, tmp_path):
    async def scenario() -> tuple[dict[str, Any], list[list[int]]]:
        async with fleet(server, tmp_path, hosts=HOSTS) as there:
            await rolled(there)
            await there.until(lambda: updated(there), LIMIT_S, "every host is released")
            return await there.truth(), [d.ends for d in there.daemons]

    truth, ends = asyncio.run(scenario())

    judge(truth)
    assert ends == [[0], [0], [0]]


@FULL
def test_whatever_may_happen_to_daemons_in_one_intake_repeats_nothing(server, tmp_path):
    """A kill, a stop of a minute, a cut cable, a lost database, a rolling restart: one by one."""

    async def scenario() -> tuple[dict[str, Any], int]:
        async with behind_a_cable(server, tmp_path) as (there, cable):
            (await killed(there)).start()
            await stands_still(there, await mid_flash(there), 60.0)
            await loses_its_cable(there, there.daemons[0], cable)
            await lost_and_back(there, server)
            await taken_over(there, adoptions(there))
            await rolled(there)
            await there.until(lambda: updated(there), LIMIT_S, "every host is released")
            return await there.truth(), adoptions(there)

    truth, adopted = asyncio.run(scenario())

    judge(truth, takeovers=7)
    assert adopted >= 3


async def keep_all(there: Fleet, book: SqlRecoveryRepository) -> None:
    """A person's word on leaves that cannot be read: they were not taken over at the backup."""
    now = there.clock.now()
    word = {"settled": Settlement.KEEP, "settled_by": "a person", "settled_at": now}
    for one in await book.list_differences():
        if one.settled is None:
            assert one.kind is DifferenceKind.UNREAD
            if one.leaf:
                await book.settle(one.model_copy(update=word))
                continue
            node = await there.store.nodes.get(one.subject)
            assert node is not None
            kept = settle_by_word(node, one, Settlement.KEEP, now)
            assert isinstance(kept, Node)
            await book.settle(one.model_copy(update=word), kept)


@FULL
def test_the_database_is_restored_from_its_backup_without_dbos_tables(server, tmp_path):
    """As docs/high-availability.md says: our rows alone bring everything back."""
    dump = server.folder / "provisioner.dump"

    async def scenario() -> tuple[bool, int, int, list[Path]]:
        async with fleet(server, tmp_path, hosts=2, daemons=1) as there:

            async def driving() -> bool:
                return sum((await there.owners()).values()) > 0

            await there.until(driving, LIMIT_S, "something is driven")
            there.daemons[0].kill()
            server.client(
                "pg_dump", "--format=custom", "--exclude-schema=dbos", f"--file={dump}",
                "--dbname", there.database,
            )  # fmt: skip
            rows = (await there.store.journal.verify()).rows
            active = len(await there.store.operations.list_active())
            await there.store.close()
            restored = server.make()
            server.client("pg_restore", "--exit-on-error", "--dbname", restored, str(dump))
            there.move_to(restored)
            check = await there.store.journal.verify()
            there.daemons[0].start()

            book = there.store.recovery

            async def surveyed() -> bool:
                return await book.get_surveyed_at() > 0

            await there.until(surveyed, 120.0, "rows and leaves are compared")
            await keep_all(there, book)
            await book.finish("a person", there.clock.now())

            async def again() -> bool:
                return there.daemons[0].said("driven by nobody") >= active

            await there.until(again, 180.0, "every active operation is driven again")
            return check.intact, check.rows - rows, active, list(tmp_path.glob("d0/master.key"))

    intact, missing, active, keys = asyncio.run(scenario())

    assert (intact, missing, len(keys)) == (True, 0, 1)
    assert active > 0
