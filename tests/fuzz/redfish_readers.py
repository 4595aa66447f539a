"""Readers of Redfish services' answers, as registry.py lists readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.input_error import InputError
from provisioner.ports import PortError
from provisioner.quirks import UNKNOWN

_BODY = {"Boot": {"Mode": "UEFI"}}
_SETTINGS = "adapters.redfish.settings.reading"
REDFISH_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("quirks", (), "identify_managers", {}),
    ("quirks", (), "is_stated", {"quirk": UNKNOWN}),
    ("adapters.redfish.eventing.events", (), "read_document read_conditions read_entry", {}),
    ("adapters.redfish.eventing.events", (), "list_related", {}),
    ("adapters.redfish.parts", (), "read_health", {}),
    ("adapters.redfish.eventing.events", (), "parse_document", {}),
    ("adapters.redfish.eventing.registries", (), "read_registry", {}),
    ("adapters.redfish.glance", (PortError,), "read_answer", {"size_max_bytes": 256}),
    ("adapters.redfish.messages", (), "read_messages body_of collect_messages task_paths", {}),
    ("adapters.redfish.messages", (), "find_error_inside", {}),
    ("adapters.redfish.messages", (), "find_failed_part", {}),
    ("adapters.redfish.messages", (), "correct_status", {"read": False}),
    ("adapters.redfish.messages", (), "read_refusal", {"subject": "x", "unblock": "y"}),
    ("adapters.redfish.messages", (), "find_named find_not_taken", {"body": _BODY}),
    ("adapters.redfish.messages", (), "leave_out", {"body": _BODY, "shown": {}, "spare": "a"}),
    ("adapters.redfish.messages", (), "add_demanded", {"body": {}, "offered": _BODY}),
    ("adapters.redfish.messages", (), "drop_shown", {"body": _BODY, "always": ()}),
    ("adapters.redfish.messages", (), "is_shown", {"path": ("Boot", "Mode"), "value": "UEFI"}),
    ("adapters.redfish.messages", (), "list_leaves", {}),
    ("adapters.redfish.parsing", (), "as_object objects text truth number at path_of link mac", {}),
    ("adapters.redfish.parsing", (), "mac_of_guid", {}),
    ("adapters.redfish.parsing", (ValueError, RecursionError), "parse_fields unpack", {}),
    ("adapters.redfish.messages", (PortError,), "read_document", {}),
    (
        "integrations.recordings.pseudonyms",
        (),
        "make_pseudonym",
        {"key": b"key", "kind": "GUID"},
    ),
    ("integrations.recordings.recorder", (), "find_links", {}),
    ("adapters.redfish.service", (), "target_of list_actions", {}),
    ("adapters.redfish.service", (), "action_of", {"name": "Reset"}),
    ("adapters.redfish.service", (PortError,), "raise_not_ready", {"path": "/redfish/v1"}),
    ("adapters.redfish.session", (), "sessions_path path_of password_change retry_after_s", {}),
    ("adapters.redfish.discovery", (PortError,), "read_origins", {}),
    ("adapters.redfish.tasks", (), "of_task of_hpe", {}),
    ("adapters.redfish.tasks", (), "read_view", {"path": "/redfish/v1/TaskService/Tasks/1"}),
    ("adapters.redfish.settings.bios_writes", (), "fingerprint_pem", {}),
    ("adapters.redfish.upkeep.certificates", (), "read_request", {}),
    ("adapters.redfish.upkeep.bmc_time", (), "fingerprint_key", {}),
    ("adapters.redfish.upkeep.leaks", (), "list_counts", {"prefix": "", "depth": 0}),
    (
        "execution.observe.certificate_exchange",
        (),
        "judge_issued",
        {"bmc": "n/host", "now": 0.0, "renew_days": 30.0},
    ),
    (_SETTINGS, (), "parse_attributes parse_value", {}),
    (_SETTINGS, (), "parse_registry", {"source": "/redfish/v1/Registries/x"}),
    (
        "integrations.published_versions.deciding.learned_sets",
        (InputError,),
        "learn_sets",
        {"source": "node.json"},
    ),
)
