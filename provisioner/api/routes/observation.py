"""Routes of observing: the mode of the daemon, and the acts that it would carry out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Route
from provisioner.model.adoption.capability import Observation
from provisioner.model.base import Record
from provisioner.runtime import permit
from provisioner.runtime import permit as process_scope

TAG = "observation"
Mode = TypeAliasType("Mode", Literal["act", "observe", "look_only"])


class ModeView(Record):
    """Whether this daemon changes devices."""

    mode: Mode = Field(
        description="act: it changes devices; observe: it was started to read alone; look_only: "
        "a restore must be settled first."
    )
    why: str = Field(description="Why no device is changed; empty: it acts.")
    withheld: int = Field(description="Requests that were refused before they were sent.")


class StrangePort(Record):
    """A port that stands in a tenant's network, and that no node owns."""

    port: str = Field(description="Leaf and interface.")
    why: str


class ObservationList(Record):
    """The last reading of every node."""

    items: tuple[Observation, ...]


class PortList(Record):
    """Ports of the leaves that no node owns."""

    items: tuple[StrangePort, ...]


def read_mode() -> Mode:
    """Return the mode of this process."""
    if permit.is_observing():
        return "observe"
    return "look_only" if permit.get_closing_reason() else "act"


async def show_mode(ask: Ask) -> Reply:
    """Return the daemon's mode."""
    withheld = process_scope.get_scope().counts.get(permit.WITHHELD, 0)
    why = permit.get_closing_reason() if ask.caller.staff else ""
    return Reply(ModeView(mode=read_mode(), why=why, withheld=withheld))


async def list_observations(ask: Ask) -> Reply:
    """Return the last reading of every node; none where this daemon acts."""
    observer = ask.parts.observer
    rows = {} if observer is None else observer.observations
    return Reply(ObservationList(items=tuple(rows[name] for name in sorted(rows))))


async def show_observation(ask: Ask) -> Reply:
    """Return the last reading of one node."""
    node = await ask.read_node()
    observer = ask.parts.observer
    row = None if observer is None else observer.observations.get(node.id)
    if row is None:
        raise refuse_missing("observation of this node yet")
    return Reply(row)


async def list_strange_ports(ask: Ask) -> Reply:
    """Return the ports in tenants' networks that no node owns."""
    observer = ask.parts.observer
    rows = {} if observer is None else observer.ports
    return Reply(PortList(items=tuple(StrangePort(port=p, why=rows[p]) for p in sorted(rows))))


_ABSENT = {404: "This daemon does not observe, or has not read the node yet."}
ROUTES = (
    Route(
        "GET",
        "/mode",
        "show_mode",
        TAG,
        "Show whether this daemon changes devices, and why not.",
        ANYBODY,
        show_mode,
        {200: ModeView},
    ),
    Route(
        "GET",
        "/observations",
        "list_observations",
        TAG,
        "List what an observing daemon read of each node, and would do.",
        VIEWERS,
        list_observations,
        {200: ObservationList},
    ),
    Route(
        "GET",
        "/nodes/{node}/observation",
        "show_observation",
        TAG,
        "Show the last reading of a node, with its plan, ports, cables, health and refusals.",
        VIEWERS,
        show_observation,
        {200: Observation},
        refusals=_ABSENT,
    ),
    Route(
        "GET",
        "/observations/ports",
        "list_strange_ports",
        TAG,
        "List ports of leaves that stand in a tenant's network and belong to no node.",
        VIEWERS,
        list_strange_ports,
        {200: PortList},
    ),
)
