"""Readers of what a host's own commands print at intake, as registry.py lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.matrix import Pin

_SETS = {"sets": {"k": {"n": {}}}, "rail_cards": (), "rail_mtu": 9216}
_PINNED = {"host.driver": Pin(version="550.90.07")}

HOST_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("planning.intake.host_tools", (), "read_sets", _SETS),
    ("planning.intake.host_tools", (), "is_look", {}),
    ("planning.intake.inband_facts", (), "is_reading_command", {}),
    ("planning.intake.inband_facts", (), "read_drives", {}),
    ("planning.intake.host_tools", (), "find_lacks", {}),
    ("planning.intake.host_tools", (), "refuse_system", {"node_id": "n1", "pins": _PINNED}),
    ("model.host_packages", (), "read_stack", {"versions": {}}),
    ("planning.intake.inband_facts", (), "read", {"cards": (), "profiles": {}}),
)
