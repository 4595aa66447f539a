"""Readers of records of others, NetBox to NICo and tenants, as registry.py lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.integrations.inventories.deciding.maas_machines import TenantField, ZoneMeaning
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind

HOST = Node(id="su0-n01", kind=NodeKind.HOST)
RECORD_DECODERS = {
    "integrations.inventories.record_service": (
        "integrations.inventories.deciding.ironic_nodes:list_nodes"
    ),
    "daemon.events_process": "it takes settings that its daemon wrote",
}

RECORD_BESIDE = {
    "integrations.cumulus.nvue_calls:build_merge": "it takes what we made ourselves",
    "integrations.cumulus.services:encode_change": "tests/switches/test_switch_settings.py",
    "integrations.cumulus.services:read_services": "tests/switches/test_switch_settings.py",
    "integrations.sonic.services:plan_services": "tests/switches/test_switch_settings.py",
    "integrations.inventories.deciding.ironic_nodes:list_links": (
        "of list_ports; tests/ironic/test_adopt_ironic.py"
    ),
    "runtime.server_tls:open_server_context": "it takes what we made ourselves",
}

RECORD_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("access.identity", (), "read_scope", {}),
    ("integrations.inventories.deciding.netbox_places", (), "normalize_address", {}),
    (
        "integrations.inventories.deciding.belief_comparison",
        (),
        "format_address bracket_address",
        {},
    ),
    ("integrations.inventories.deciding.ironic_nodes", (ValueError,), "list_nodes list_ports", {}),
    (
        "integrations.inventories.deciding.maas_machines",
        (ValueError,),
        "list_zones list_machines",
        {},
    ),
    (
        "integrations.inventories.deciding.maas_machines",
        (),
        "read_machine",
        {"tenant": TenantField.OWNER, "zone": ZoneMeaning.SITE},
    ),
    ("integrations.inventories.deciding.nico_machines", (ValueError,), "list_records", {}),
    (
        "integrations.inventories.deciding.host_table",
        (InputError,),
        "read_table",
        {"source": "hosts.csv"},
    ),
    (
        "integrations.inventories.deciding.ironic_nodes",
        (),
        "read_belief",
        {"firmware": None, "inventory": None},
    ),
    (
        "integrations.inventories.deciding.ironic_nodes",
        (),
        "read_belief",
        {"node": {}, "firmware": None},
    ),
    (
        "integrations.inventories.deciding.ironic_nodes",
        (),
        "read_belief",
        {"node": {}, "inventory": None},
    ),
    ("integrations.sonic.services", (), "read_services", {}),
    ("planning.release.tenant_login", (ValueError,), "parse_user_data", {}),
    (
        "planning.release.tenant_login",
        (),
        "judge_placement",
        {"node": HOST, "content": "#!/bin/sh"},
    ),
    ("api.routes.declared.policies", (), "merge_document", {"document": {"canary": {}}}),
)
