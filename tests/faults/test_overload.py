"""What strains the daemon, what it leaves off first, and that it says so."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import virtual_time
from drill import Drill

from provisioner.control.context import Context
from provisioner.control.engine.overload import CALM_SAMPLES, Overload, measure_load
from provisioner.control.node.scheduler import Scheduler
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.lifecycle.admission import Level, Load, find_strains, highest_level
from provisioner.settings import Settings

CALM = Load(descriptors=50, descriptors_max=1024, disk_free_bytes=100 * 1024**3)
SEVERE = CALM.model_copy(update={"disk_free_bytes": 100 * 1024**2})


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (CALM, []),
        (Load(), []),
        (Load(lag_s=1.5), [("event_loop", Level.STRAINED)]),
        (Load(lag_s=9.0), [("event_loop", Level.SEVERE)]),
        (Load(waiting=2_500), [("store", Level.STRAINED)]),
        (Load(descriptors=850, descriptors_max=1024), [("descriptors", Level.STRAINED)]),
        (Load(descriptors=1000, descriptors_max=1024), [("descriptors", Level.SEVERE)]),
        (Load(disk_free_bytes=1024**3), [("disk", Level.STRAINED)]),
        (
            Load(disk_free_bytes=1024, waiting=2_000),
            [("disk", Level.SEVERE), ("store", Level.STRAINED)],
        ),
    ],
)
def test_it_is_told_what_strains_the_daemon_the_worst_first(
    load: Load, told: list[tuple[str, Level]]
) -> None:
    found = find_strains(load)

    assert [(s.by, s.level) for s in found] == told
    assert highest_level(found) == max((one for _, one in told), default=Level.CALM)


def _node(name: str, state: State) -> Node:
    return Node(id=name, kind=NodeKind.HOST, state=state)


def test_looks_are_put_off_first_then_new_work_and_a_node_is_taken_back_whatever_the_load(
    tmp_path: Path,
) -> None:
    async def main() -> tuple[list[object], list[str]]:
        drill = await Drill(tmp_path).open()
        store, clock, opened = drill.store, drill.clock, []
        for node in (_node("new", State.DISCOVERED), _node("back", State.DRAINING)):
            await store.nodes.add(node)

        async def submit(operation: str) -> None:
            found = await store.operations.get(operation)
            assert found is not None
            opened.append(found.node)

        overload = Overload(store, clock)
        begins = Scheduler(
            Context(store, clock, Settings(site="test")), submit, None, overload.may_begin
        )
        await overload.take(Load(lag_s=1.5))
        allowed: list[object] = [overload.level, overload.may_watch()]
        await overload.take(SEVERE)
        allowed += [overload.level, overload.may_watch()]
        await begins.tick()
        allowed.append(list(opened))
        for _ in range(CALM_SAMPLES):
            await overload.take(CALM)
        await begins.tick()
        allowed += [overload.level, overload.may_watch(), list(opened)]
        rows = await store.journal.list()
        return allowed, [r["kind"] for r in rows if r["kind"].startswith("overload")]

    allowed, told = virtual_time.run(main())

    assert allowed == [
        *(Level.STRAINED, False, Level.SEVERE, False, ["back"]),
        *(Level.CALM, True, ["back", "new"]),
    ]
    assert told == ["overloaded", "overloaded", "overload_over"]


def test_one_calm_moment_does_not_bring_back_what_was_left_off(tmp_path: Path) -> None:
    async def main() -> Level:
        drill = await Drill(tmp_path).open()
        overload = Overload(drill.store, drill.clock)
        await overload.take(SEVERE)
        await overload.take(CALM)
        return overload.level

    assert virtual_time.run(main()) is Level.SEVERE


def _take_all(taken: list[int]) -> None:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Every file descriptor of this process is taken, but for those that are open already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            _take_all(taken)
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_a_process_without_file_descriptors_knows_it() -> None:
    found = find_strains(measure_load(object(), 0.0))

    assert [(s.by, s.level) for s in found] == [("descriptors", Level.SEVERE)]
    assert "512 of 512" in found[0].detail
