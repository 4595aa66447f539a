"""65,536 hosts at once, to measure how smooth the map is: in a store, and as the API sends it."""

from __future__ import annotations

from console_release import NEWER, PROFILE
from served import NOW, RELEASE
from sqlalchemy import Connection, insert

from provisioner.api.fleet_atlas import format_map
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.store.rows.node_rows import _columns
from provisioner.store.schema.schema import nodes

STATES = (State.RELEASED, State.RELEASED, State.CERTIFIED, State.CONVERGING, State.QUARANTINED)


def large_map(size: int, change: int) -> bytes:
    """What GET /v1/fleet/map answers; the stream adds nodes that changed after `change`."""
    rows = []
    for number in range(size):
        unit = number // 32
        facts = (
            ("host",), (_state(number).value,), (PROFILE,), (_release(number),),
            (f"t{number % 16}",), ("",), ("customer",), ("site",), (str(unit // 64),), (str(unit),),
            (f"rack-{number // 4:05d}",), tuple(f"{r} leaf-{unit}-r{r}" for r in range(8)), (), (),
        )  # fmt: skip
        rows.append((f"n{number:05d}", facts))
    return format_map(1, rows, change)


def _state(number: int) -> State:
    return STATES[(number * 7 + number // 96) % 5]


def _release(number: int) -> str:
    return (RELEASE, NEWER)[number % 3 == 0]


def put_fleet(connection: Connection, size: int) -> None:
    """Many hosts, 32 in a scalable unit; each body is one of a few with its own place."""
    rows = []
    for number in range(size):
        unit = number // 32
        row = Node.model_construct(
            id=f"n{number:05d}",
            kind=NodeKind.HOST,
            state=_state(number),
            release=_release(number),
            profile=PROFILE,
            tenant=f"t{number % 16}",
            location=Location(pod=unit // 64, scalable_unit=unit, rack=f"rack-{number // 4:05d}"),
            ports=_cables(unit),
            entered_at=NOW,
        )
        rows.append({"id": row.id, **_columns(row)})
        if len(rows) == 2048 or number == size - 1:
            connection.execute(insert(nodes), rows)
            rows = []


_known: dict[int, tuple[Port, ...]] = {}


def _cables(unit: int) -> tuple[Port, ...]:
    if unit not in _known:
        _known[unit] = tuple(
            Port(switch=f"leaf-{unit}-r{r}", interface="swp1", rail=r, nic_slot=f"N{r}")
            for r in range(8)
        )
    return _known[unit]
