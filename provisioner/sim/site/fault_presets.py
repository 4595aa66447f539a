"""Named faults, each with its number in the fault catalogue and one line of meaning.

S: sessions, T: transport, E: HTTP semantics, U: updates and tasks, V: values, P: power and media
(docs/sources/bmc-faults.md). H: faults of parts, seen in-band; M: maintenance agents; W: switches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.sim.agent import agent_faults
from provisioner.sim.faults import load_faults
from provisioner.sim.faults.faults import BadRule
from provisioner.sim.hardware import curable_faults
from provisioner.sim.site import fault_presets_bmc
from provisioner.sim.site.connection_faults import IN_ANSWERS, ON_WIRE
from provisioner.sim.site.fault_preset import IN_SWITCHES, Preset, machine_fault
from provisioner.sim.site.part_faults import IN_PARTS
from provisioner.sim.site.site import Site


def _curable(row: tuple[str, str, str, str, tuple[str, ...], dict[str, Any]]) -> Preset:
    """A part's fault that one of the named events cures."""
    name, number, meaning, slot, cured_by, changes = row

    def act(site: Site, node: str, part: str) -> None:
        curable_faults.break_part(site.machines[node], part or slot, cured_by, changes)

    return Preset(name, number, meaning, "node", act=act)


_ROWS = (*agent_faults.ALL, *load_faults.ALL)
IN_AGENTS = (*(machine_fault(*row) for row in _ROWS), *map(_curable, curable_faults.ALL))
PRESETS = (*ON_WIRE, *IN_ANSWERS, *fault_presets_bmc.ALL, *IN_PARTS, *IN_AGENTS, *IN_SWITCHES)
ALL: dict[str, Preset] = {p.name: p for p in PRESETS}


def inject_fault(site: Site, name: str, subject: str, part: str = "") -> Preset:
    """Put a named fault on a node or switch, or on one of its BMCs or parts.

    Raises `BadRule` if there is no such fault, node, switch or part.
    """
    preset = ALL.get(name)
    if preset is None:
        raise BadRule(f"preset: there is no {name!r:.40}")
    subjects = site.switches if preset.target == "switch" else site.machines
    if subject not in subjects:
        raise BadRule(f"node: {subject!r:.60} is no {preset.target} of this site")
    for rule in preset.rules:
        site.faults.add(replace(rule, endpoint=f"{subject}/{part or 'host'}", seen=0, done=0))
    if preset.act is not None:
        try:
            preset.act(site, subject, part)
        except KeyError:
            raise BadRule(f"part: {subject} has no {part!r:.40}") from None
    site.injected.append((f"{subject}/{part}" if part else subject, name))
    return preset
