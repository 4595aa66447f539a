"""What is lost with the outlets of power shelves, for whoever cycles a node by its outlets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from provisioner.integrations.racks.impact import build_graph, derive_impact
from provisioner.integrations.racks.plan import read_plan
from provisioner.settings import Settings

NAMED = 3  # of what is lost


def find_outlet_users(settings: Settings, outlets: Sequence[str]) -> Mapping[str, str]:
    """Return what is lost with each of these outlets that a rack's plan has. Raises InputError."""
    graph = build_graph(read_plan(Path(settings.racks_folder) / "racks.yaml"))
    found: dict[str, str] = {}
    for outlet in outlets:
        if (thing := f"outlet:{outlet}") in graph.needs:
            impact = derive_impact(graph, (thing,))
            users = [name for name in {**impact.lost, **impact.weakened} if name != thing]
            more = f" and {len(users) - NAMED} more" if len(users) > NAMED else ""
            found[outlet] = f"{', '.join(users[:NAMED])}{more} by the racks' plan"
    return found
