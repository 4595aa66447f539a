"""The reference page of the simulated BMCs' shapes: each property's source, or "assumed"."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import HandClock, Schedule
from provisioner.integrations.sim.redfish.bmc import make_service, read_shape
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.sources import ASSUMED, RULES
from provisioner.integrations.sim.site.control import ALL as FAULTS

ROOT = "/redfish/v1"
REDUCED = Path(__file__).parents[1] / "tests" / "recorded" / "writes"
# shapes whose whole tree is not kept here, and the reduced tree that their source gave
REDUCED_TREES = {
    "hpe": "hpe_ilo5.json",
    "lenovo": "lenovo_xcc.json",
    "supermicro": "supermicro_x13.json",
    "nvidia_gb200": "gb200.json",
}
SHAPES = ("dell", "ami_dgx", "nvidia_openbmc", *REDUCED_TREES)


def make_page() -> str:
    """The page: rules with their sources, then shapes with theirs."""
    lines = [
        "# The simulated BMCs",
        "",
        "Made from the simulator itself. What is assumed proves nothing about the client.",
        "",
        "## Rules",
        "",
        "| behaviour | shape | source |",
        "|---|---|---|",
        *(f"| {r.behaviour} | {r.shapes} | {r.source} |" for r in RULES),
        "",
        f"{sum(r.source == ASSUMED for r in RULES)} of {len(RULES)} rules are assumed.",
        "",
        "## Shapes",
        "",
        "| shape | source | overlays | resources only shown |",
        "|---|---|---|---|",
    ]
    for name in SHAPES:
        shape = read_shape(name)
        assert shape is not None
        lines.append(f"| {name} | {shape.source} | {len(shape.overlays)} | {shape.resources} |")
    lines += [
        "",
        "Of each shape with a whole tree `tests/sim/test_recorded_shapes.py` requires 85 % of the",
        "properties of every type that the client reads or writes.",
        "",
        "## Properties that no source kept here shows",
        "",
        "Of the shapes whose source is a reduced tree: each is assumed.",
        "",
        "| shape | type | assumed properties |",
        "|---|---|---|",
    ]
    for name, file in REDUCED_TREES.items():
        for kind, properties in sorted(find_assumed(name, REDUCED / file).items()):
            lines.append(f"| {name} | {kind} | {', '.join(properties)} |")
    return "\n".join(lines) + "\n"


def find_assumed(name: str, file: Path) -> dict[str, list[str]]:
    """Type -> the properties that the simulator shows, and the reduced tree does not."""
    sourced: dict[str, set[str]] = defaultdict(set)
    for body in json.loads(file.read_text(encoding="utf-8"))["tree"].values():
        sourced[_type_of(body)] |= set(body)
    machine = build_machine("n0", Schedule(), seed=1, vendor=name)
    shown: dict[str, set[str]] = defaultdict(set)
    for body in _list_resources(make_service(machine, "host", HandClock())):
        shown[_type_of(body)] |= {p for p in body if "@" not in p and p not in ("Id", "Name")}
    return {
        kind: sorted(properties - sourced[kind])
        for kind, properties in shown.items()
        if kind and not kind.endswith("Collection") and properties - sourced[kind]
    }


def _list_resources(service: RedfishService) -> Iterator[Mapping[str, Any]]:
    """Every resource that can be reached from the root by links."""
    waiting, visited = [ROOT], {ROOT}
    while waiting:
        resource = service.tree.find(waiting.pop())
        body = resource.read() if resource is not None and resource.read is not None else None
        if body is None:
            continue
        yield body
        for link in _links(body):
            if link not in visited:
                visited.add(link)
                waiting.append(link)


def _links(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "@odata.id" and isinstance(inner, str):
                yield inner.partition("#")[0]
            else:
                yield from _links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _links(inner)


def _type_of(body: Mapping[str, Any]) -> str:
    return str(body.get("@odata.type", "")).lstrip("#").partition(".")[0]


def make_page_of_faults() -> str:
    """Return the page of faults by name: what `provisioner sim break` can do."""
    lines = [
        "# Faults of the simulated site, by name",
        "",
        "The letter is the part of the catalogue: S sessions, T transport, E HTTP semantics,",
        "U updates and tasks, V values, P power and media, H parts of a host, L load tests,",
        "F tests among nodes, M maintenance agents, W switches. BMC faults have their sources in",
        "[the catalogue](../sources/bmc-faults.md).",
        "",
        "| name | catalogue | on | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{p.name}` | {p.catalogue} | {p.target} | {p.meaning} |" for p in FAULTS.values()]
    return "\n".join(lines) + "\n"
