"""Readers of other systems' records (NetBox, Ironic), as registry.py lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECORD_DECODERS = {"adapters.ironic": "planning.intake.ironic_nodes:list_nodes"}

RECORD_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("planning.intake.netbox_places", (), "normalize_address", {}),
    ("planning.intake.belief_comparison", (), "format_address", {}),
    ("planning.intake.ironic_nodes", (ValueError,), "list_nodes", {}),
    ("planning.intake.ironic_nodes", (), "read_belief", {"firmware": None, "inventory": None}),
    ("planning.intake.ironic_nodes", (), "read_belief", {"node": {}, "firmware": None}),
    ("planning.intake.ironic_nodes", (), "read_belief", {"node": {}, "inventory": None}),
)
