"""Reads the counters of NVLinks: those that a GPU's ports have, or those of an NVSwitch's.

HGX baseboards show them as `PortMetrics` below each port of a processor, and of a switch of the
NVLink fabric (DMTF DSP0268; paths as in a DGX H100's recorded tree). Only one part is read at once,
since a port is a request. The device's own counts are passed on: none is reset.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.adapters.redfish.parsing import Json, as_object, link
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.outcome import Gap

PORTS_MAX = 64  # of one part; an NVSwitch of this generation has 64
COUNTERS_MAX = 64  # of one port
DEPTH_MAX = 4
COUNT_MAX = 2**64
OWN = "@"  # begins names that describe the document


@dataclass(frozen=True)
class LinkCounter:
    """One counter of one port."""

    port: str  # path of the port's metrics
    name: str  # as the device names it, with the objects around it
    count: int


@dataclass(frozen=True)
class LinkReading:
    """The counters of all ports of one part, and the resources that were not read."""

    part: str
    counters: tuple[LinkCounter, ...]
    gaps: tuple[Gap, ...]


async def read_link_counters(service: Service, part: str) -> LinkReading:
    """Return the counters of a GPU or a switch by its id; "": of the first that has ports."""
    walk = service.walk()
    counters: list[LinkCounter] = []
    name, ports = await _find_ports(walk, part)
    paths = [link(port, "Metrics") for port in ports[:PORTS_MAX]]
    for metrics in await walk.read_several([path for path in paths if path is not None]):
        counters += [
            LinkCounter(metrics.path, name, count)
            for name, count in list_counts(metrics.data).items()
        ]
    return LinkReading(name, tuple(counters), tuple(walk.gaps))


async def _find_ports(walk: Walk, part: str) -> tuple[str, list[Json]]:
    """Return id and ports of the first processor or fabric switch that has this id, or any."""
    root = await walk.read_root()
    for holder, members in (("Systems", "Processors"), ("Fabrics", "Switches")):
        for path in await walk.read_links(link(root, holder)):
            parts = await walk.read_links(link((await walk.read(path)).data, members))
            for one in parts:
                name = one.rsplit("/", 1)[-1]
                if part and name != part:
                    continue
                ports = await walk.read_linked((await walk.read(one)).data, "Ports")
                if part or ports:
                    return name, [port.data for port in ports]
    return part, []


def list_counts(document: object, prefix: str = "", depth: int = 0) -> dict[str, int]:
    """Return the counts of a document by name, "NVLinkErrors.ReplayCount"; the makers' objects
    around them (`Oem`) are left out of the names.
    """
    counts: dict[str, int] = {}
    for key, value in as_object(document).items():
        if key.startswith(OWN) or len(counts) >= COUNTERS_MAX:
            continue
        if isinstance(value, dict) and depth < DEPTH_MAX:
            outer = depth < 2 and (key == "Oem" or prefix == "Oem.")
            inner = "Oem." if key == "Oem" else "" if outer else f"{prefix}{key}."
            counts |= list_counts(value, inner, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_MAX:
            counts[f"{prefix}{key}"] = value
    return dict(list(counts.items())[:COUNTERS_MAX])
