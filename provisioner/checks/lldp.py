"""I13: the neighbours that LLDP names are the leaf ports that the plan cables the node to.

A cable in the wrong leaf or the wrong port is seen here; the two ends of two swapped rails of one
host are told apart only by their addresses, which the fabric tests use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import LLDP
from provisioner.checks.reading import json_of, mapping, text_of, word
from provisioner.model.health import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    seen = _neighbours(json_of(text_of(evidence, LLDP), "lldpctl"))
    for switch, interface in context.neighbours:
        locals_ = [local for local, place in seen if place == (switch, interface)]
        if len(locals_) != 1:
            there = sorted(f"{s}/{i}" for _, (s, i) in seen if s == switch)
            yield fault(
                f"{switch}/{interface}",
                Severity.CONFIG,
                "the planned neighbour is not seen"
                if not locals_
                else "one neighbour is seen at two ports",
                ", ".join(there) or "nothing of this leaf",
                f"{switch}/{interface}",
            )
    leaves = {switch for switch, _ in context.neighbours}
    for local, place in seen:
        if place[0] in leaves and place not in context.neighbours:
            yield fault(
                local, Severity.CONFIG, "cabled to a port that is not planned", "/".join(place)
            )


def _neighbours(document: Any) -> list[tuple[str, tuple[str, str]]]:
    """(local interface, (chassis name, port)) for every neighbour."""
    lldp = mapping(mapping(document, "lldpctl").get("lldp"), "lldp")
    listed = lldp.get("interface", [])
    # lldpctl prints a list of one-key objects, and a plain object when there is one interface
    entries = listed if isinstance(listed, list) else [listed]
    found = []
    for entry in entries:
        for local, facts in mapping(entry, "interface").items():
            one = mapping(facts, local)
            names = list(mapping(one.get("chassis"), "chassis"))
            port = mapping(mapping(one.get("port"), "port").get("id"), "port id")
            if len(names) != 1:
                raise Unreadable(f"lldpctl: {local[:20]} has not one chassis")
            found.append((local, (names[0], word(port.get("value"), "port id"))))
    return found


CHECK = Check("lldp", Gate.A, (LLDP,), _findings)
