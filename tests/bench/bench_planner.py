"""How long a fleet takes to plan: run with `.venv/bin/python`; arguments: NODES VECTORS.

Nodes have a host BMC, the driver stack, an HGX baseboard known by its parts and ten BlueFields;
they differ in which versions run. Each has an inventory of its own, as a site would have.
"""

from __future__ import annotations

import sys
import time
from itertools import islice, product

from provisioner import components
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release, Requirement
from provisioner.model.plan import Neighbour
from provisioner.planning.path.planner import PlanCache, PlanningNode, plan_fleet

VERSIONS = ("1.0", "1.1", "1.2", "1.3")  # of everything that is not a bundle
BUNDLES = tuple(f"HGX-H100x8_0002_23010{n}.1.0" for n in range(1, 5))
BFBS = tuple(f"2.{n}.0-10" for n in (6, 7, 9, 10))
STACK = ("host.driver", "host.fabric_manager", "host.doca", "host.bmc", "host.bios")
ACTIVATES = {
    "host.bmc": Activation.BMC_RESET,
    "host.bios": Activation.COLD_BOOT,
    "hgx.bundle": Activation.AC_CYCLE,
    "bluefield.bundle": Activation.COLD_BOOT,
}


def matrix() -> Matrix:
    """Each component climbs from any older version, one step at a time or all at once."""
    edges: dict[str, tuple[Edge, ...]] = {}
    chains = dict.fromkeys(STACK, VERSIONS) | {"hgx.bundle": BUNDLES, "bluefield.bundle": BFBS}
    for kind, chain in chains.items():
        found = []
        for number, to in enumerate(chain[1:], 1):
            found.append(
                Edge(
                    from_versions=chain[max(0, number - 2) : number],
                    to=to,
                    activates_by=ACTIVATES.get(kind, Activation.WARM_REBOOT),
                    carries={"bluefield.nic": f"32.4{number}.1000"}
                    if kind == "bluefield.bundle"
                    else {},
                    requires={"host.bmc": ">=1.1"} if kind == "hgx.bundle" else {},
                    artifact="file",
                    sha256="0" * 64,
                    evidence="bench",
                )
            )
        edges[kind] = tuple(found)
    contents = {
        version: {"hgx.gpu": f"96.00.0{n}.00.01", "hgx.bmc": f"HGX-22.10-1-rc{n}"}
        for n, version in enumerate(BUNDLES)
    }
    pins = {kind: Pin(version=chain[-1]) for kind, chain in chains.items()}
    rules = (
        Requirement(
            name="fabric manager equals driver",
            when={"host.driver": ">0"},
            needs={"host.fabric_manager": "=host.driver"},
            reason="it refuses to start otherwise",
        ),
        Requirement(
            name="NIC firmware needs its Cumulus",
            when={"bluefield.nic": ">=32.43"},
            needs={"switch.os": ">=5.11.0.0026"},
            reason="tested together",
        ),
    )
    profile = Profile(match=Match(), pins=pins)
    return Matrix(
        releases={"r": Release(profiles={"p": profile}, requires=rules)},
        edges=edges,
        bundles={"hgx.bundle": contents},
    )


def vectors(count: int) -> list[tuple[int, ...]]:
    """Distinct version vectors: positions in the chains of bundle, BFB, driver, DOCA, BMC, BIOS."""
    return list(islice(product(range(3), range(4), range(3), range(3), range(2), range(4)), count))


def inventory(name: str, vector: tuple[int, ...]) -> Inventory:
    """One node; 39 components."""
    bundle, bfb, driver, doca, bmc, bios = vector
    versions = (driver, driver, doca, bmc, bios)
    rows = [(kind, "0", VERSIONS[v]) for kind, v in zip(STACK, versions, strict=True)]
    rows += [("hgx.gpu", f"GPU_SXM_{n}", f"96.00.0{bundle}.00.01") for n in range(1, 9)]
    rows += [("hgx.bmc", "BMC_0", f"HGX-22.10-1-rc{bundle}")]
    rows += [("bluefield.bundle", f"DPU_{n}", BFBS[bfb]) for n in range(1, 11)]
    rows += [("bluefield.nic", f"DPU_{n}", f"32.4{bfb}.1000") for n in range(1, 11)]
    rows += [("host.psu", f"PSU_{n}", "0204.0201") for n in range(6)]
    return Inventory(
        node=name,
        vendor="bench",
        components=tuple(
            Component(kind=k, slot=s, version=v, source=f"/{k}/{s}", bmc="host") for k, s, v in rows
        ),
    )


def main(count: int, distinct: int) -> None:
    """Print counts, seconds and the ratio to planning without memory."""
    out = sys.stdout.write
    kinds = vectors(distinct)
    leaf = (Neighbour(node="leaf", versions={"switch.os": ("5.12.1.100",)}),)
    out(f"making {count} inventories of {len(kinds)} distinct version vectors\n")
    nodes = [
        PlanningNode(inventory(f"n{i}", kinds[i % len(kinds)]), "r", "p", neighbours=leaf)
        for i in range(count)
    ]
    cache = PlanCache(matrix(), components.ALL, production=True)
    begun = time.perf_counter()
    plans = plan_fleet(nodes, cache)
    took = time.perf_counter() - begun
    blocked = sum(bool(p.blockers) for p in plans)
    steps = sum(len(p.steps) for p in plans)
    out(f"planned {len(plans)} nodes in {took:.2f} s: {cache.searches} searches, ")
    out(f"{blocked} blocked, {steps} steps, most resets {max(p.resets for p in plans)}\n")
    begun = time.perf_counter()
    for node in nodes[: len(kinds)]:
        PlanCache(cache.matrix, components.ALL, production=True).plan(node)
    one = (time.perf_counter() - begun) / len(kinds)
    out(f"without memory: {one * 1000:.1f} ms a node, {one * count:.0f} s for all; ")
    out(f"ratio {one * count / took:.0f}\n")


if __name__ == "__main__":
    arguments = [int(a) for a in sys.argv[1:]]
    main(*(arguments + [65_536, 200][len(arguments) :]))
