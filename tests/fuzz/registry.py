"""The list of all readers of foreign words: attempted, or not, and then why not.

test_registry.py holds it against the sources, so that a new parser cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import feeding
from feeding import Parser
from pydantic import ValidationError

from provisioner.api.problem import Refused
from provisioner.checks import fabric
from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.rail_port import Member, RailPort
from provisioner.model.erasure import Disk, Method
from provisioner.model.fabric_session import RailRun
from provisioner.model.input_error import InputError
from provisioner.planning.attestation import NotAnAttestation
from provisioner.planning.evidence_bundle import NotABundle
from provisioner.ports import PortError, TooLarge
from provisioner.switches import cumulus_state

_PORT = RailPort(rail=3, device="mlx5_3", address="172.0.0.0", gpu=3)
_ENDS = tuple(Member(node=n, address="10.0.0.1", rails=(_PORT,)) for n in ("a", "b"))
RDMA = fabric.rdma_pair(*_ENDS, 3)
NCCL = fabric.nccl_rail(_ENDS, 3)
CONTEXT = CheckContext(gpu_model="H100")
DISK = Disk(name="/dev/nvme0n1", serial="S1", size_bytes=2**40)
NAMES = {"gpu0": "gpu0", "GPU_SXM_1": "gpu0", "0000:1b:00": "gpu1"}
_FILE = {"source": "own.yaml"}
_CHECKS = (Unreadable,)
# module, what may leave its functions, the functions, and those of their parameters that are ours
_LISTED: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("access.oidc", (ValueError,), "_keys_of", {}),
    ("agent.answers", (PortError,), "parse_command parse_commands fault", {"token": "t" * 40}),
    ("agent.protocol", (), "parse_heartbeat normal_mac printable", {}),
    ("api.cursor", (Refused,), "place", {}),
    ("checks.bmc_reading", _CHECKS, "resources_of", {}),
    ("checks.dcgm_document", _CHECKS, "tests_of tests_of_many", {}),
    ("checks.gpu_burn_output", _CHECKS, "read", {}),
    ("checks.json_in_text", _CHECKS, "documents", {"what": "x"}),
    ("checks.json_in_text", _CHECKS, "document_with", {"what": "x"}),
    ("checks.kernel_lines", _CHECKS, "kernel_lines begins_at_boot is_greeting level_of", {}),
    ("checks.link_listing", _CHECKS, "looks_like_links", {}),
    ("checks.lldp", (), "ends_of", {}),
    ("checks.mlxlink_reading", _CHECKS, "read", {}),
    ("checks.mlxlink_text", _CHECKS, "ports_of", {}),
    ("checks.nccl_output", _CHECKS, "read", {}),
    ("checks.nic_listing", _CHECKS, "cards_of", {}),
    ("checks.nic_settings", _CHECKS, "settings_of plain", {}),
    ("checks.nvbandwidth_output", _CHECKS, "cases_of", {}),
    ("checks.perftest_output", _CHECKS, "bandwidths latencies", {}),
    ("checks.ras_records", _CHECKS, "looks_like_ras ras_events", {}),
    ("checks.reading", _CHECKS, "lines_of", {}),
    ("checks.reading", _CHECKS, "csv_rows", {"columns": 3, "what": "x"}),
    ("checks.reading", _CHECKS, "json_of number mapping sequence word documents_of", {"what": "x"}),
    ("checks.smi_query", _CHECKS, "read", {}),
    ("checks.storage_load", _CHECKS, "jobs_of", {}),
    ("checks.sysfs", _CHECKS, "files_of", {}),
    ("checks.xid_events", _CHECKS, "events_of", {}),
    ("checks.xid_lines", _CHECKS, "log_line", {}),
    ("control.leaf_counts", (), "changes_of", {}),
    ("execution.cable_ends", (), "read", {}),
    ("execution.fabric_outputs", (), "sections", {}),
    ("execution.fabric_outputs", (), "rdma_rail", {"test": RDMA, "context": CONTEXT}),
    (
        "execution.fabric_outputs",
        (),
        "nccl_rail",
        {"run": RailRun(rail=3, shown="pass"), "test": NCCL, "context": CONTEXT},
    ),
    ("execution.fabric_outputs", (), "collective", {"tests": (NCCL,), "context": CONTEXT}),
    ("execution.release_probes", (), "read", {}),
    ("planning.address_plan", (InputError,), "parse", _FILE),
    ("planning.attestation", (NotAnAttestation,), "opened", {}),
    ("planning.campaign_policy_text", (InputError,), "parse_policy", _FILE),
    ("planning.conditions", (ValueError,), "terms", {}),
    ("planning.disk_answers", (), "disks read_back", {"node": "su0-n01"}),
    ("planning.disk_answers", (), "step_result", {}),
    (
        "planning.disk_answers",
        (),
        "erased",
        {"disk": DISK, "method": Method.SANITIZE_CRYPTO, "started_at": 1.0, "ended_at": 2.0},
    ),
    ("planning.disk_answers", (), "printable", {"size_max": 40}),
    ("planning.error_history", (), "history", {"slots": NAMES}),
    ("planning.evidence_bundle", (NotABundle,), "unpack envelope_of", {}),
    ("planning.evidence_bundle", (), "objections", {"members": {}}),
    (
        "planning.evidence_bundle",
        (),
        "evidence_file",
        {"name": "dump crash", "digest": "d", "secrets": ("a secret",)},
    ),
    ("planning.explain_words", (), "word", {}),
    ("planning.expected_text", (InputError,), "parse", _FILE),
    ("planning.inband_facts", (), "read", {"cards": (), "profiles": {}}),
    ("planning.located_yaml", (InputError,), "load", _FILE),
    ("planning.matrix_text", (InputError,), "parse", {}),
    ("planning.netbox_places", (), "address_of", {}),
    ("planning.part_names", (), "pci_of", {}),
    ("planning.part_names", (), "slot_in", {"names": NAMES}),
    ("planning.partitions", (), "read_guid read_partitions", {}),
    ("planning.rejudging", (), "raw_outputs", {}),
    ("planning.scrubbing", (), "scrub", {}),
    ("planning.select_expression", (InputError,), "parse", {**_FILE, "fields": ("node", "rack")}),
    ("planning.select_expression", (InputError,), "select", {**_FILE, "nodes": feeding.NODES}),
    ("planning.tenant_sessions", (), "read_targets read_states", {}),
    ("planning.thresholds_text", (InputError,), "parse", _FILE),
    ("planning.vrf_difference", (), "missing", {"wanted": {"router": {"bgp": {"x": "on"}}}}),
    ("planning.vrf_obstacles", (), "at", {"path": ("router", "bgp")}),
    ("playbooks.events", (), "readable", {}),
    ("quirks", (), "identify", {}),
    ("redfish.events", (), "pushed conditions", {}),
    ("redfish.messages", (), "messages body_of told task_paths", {}),
    ("redfish.messages", (), "refusal", {"subject": "x", "unblock": "y"}),
    ("redfish.parsing", (), "as_object objects text truth number at path_of link mac", {}),
    ("redfish.parsing", (), "mac_of_guid", {}),
    ("redfish.service", (), "target_of", {}),
    ("redfish.service", (), "action_of", {"name": "Reset"}),
    ("redfish.session", (), "sessions_path path_of password_change retry_after_s", {}),
    ("redfish.ssdp", (PortError,), "origins", {}),
    ("redfish.tasks", (), "of_task of_hpe", {}),
    ("redfish.tasks", (), "view", {"path": "/redfish/v1/TaskService/Tasks/1"}),
    (
        "switches.cumulus",
        (),
        (
            "read_revision_id read_revision read_revisions read_vrf read_denied read_names "
            "read_routes read_images read_job_id read_job"
        ),
        {},
    ),
    (
        "switches.cumulus_drain",
        (),
        (
            "read_drained read_ports read_bytes read_errors read_sessions read_vnis read_health "
            "read_asic"
        ),
        {},
    ),
    (
        "switches.cumulus_state",
        (cumulus_state.Unreadable,),
        (
            "at read_routes read_peers read_imports read_targets read_neighbours read_macs "
            "read_lldp read_issues number vrf_of configured_targets configured_peers listening"
        ),
        {},
    ),
    ("switches.cumulus_state", (), "digest", {}),
    (
        "switches.cumulus_state",
        (cumulus_state.Unreadable,),
        "unsaved",
        {"startup": {"interface": {"swp1": {}}}},
    ),
    (
        "switches.cumulus_state",
        (cumulus_state.Unreadable,),
        "read_port",
        {"neighbours": frozenset(), "meant": ({}, {})},
    ),
    ("switches.sonic", (), "read_tree read_images drain_of", {}),
    ("switches.sonic", (), "read_operational", {"tree": {}}),
    ("switches.sonic", (), "read_platform", {"serial": "S1"}),
    (
        "switches.sonic_state",
        (),
        (
            "read_drained read_health read_neighbours read_routes read_peers read_leaks read_vnis "
            "read_targets read_hash read_counters"
        ),
        {},
    ),
    ("telemetry.logs", (), "scrubbed", {}),
    ("switches.sonic_state", (), "read_lldp read_port_id", {"port": "Ethernet0"}),
)
_OURS = "it takes what we made ourselves"
_READ = "it takes what was read, and bounded, before"
_JUDGES = "a part of judges, which are all attempted"
NOT_ATTEMPTED: Mapping[str, str] = {
    "access.identity:caller_of": _READ,
    "agent.answers:digest_of": _OURS,
    "api.app:response": _OURS,
    "checks.check:fault": _JUDGES,
    "checks.counters:earlier": _JUDGES,
    "checks.fabric_checks:judge_test": "attempted through execution.fabric_outputs:rdma_rail",
    "checks.kernel_lines:harmless": _JUDGES,
    "checks.link_listing:judged": _JUDGES,
    "checks.mlxlink_reading:ports": _JUDGES,
    "checks.optic_modules:modules": _JUDGES,
    "checks.rdma_reading:growth": _JUDGES,
    "checks.rdma_reading:look": _JUDGES,
    "checks.reading:text_of": _JUDGES,
    "checks.smi_query:gpus": _JUDGES,
    "checks.smi_table:table": _JUDGES,
    "control.overload:measured": _OURS,
    "event_intake:signature": _OURS,
    "execution.bundles:unpack": "it believes what `verify` reads, which is attempted",
    "planning.evidence_bundle:digest": _OURS,
    "planning.evidence_bundle:pack": _OURS,
    "planning.evidence_bundle:text_file": "attempted through evidence_file",
    "planning.attestation:pae": _OURS,
    "planning.attestation:seal": _OURS,
    "planning.case_policy:notice": _OURS,
    "planning.deployment:write_command": _OURS,
    "planning.port_isolation:leak": _READ,
    "planning.rejudging:rejudge": "raw_outputs reads it, and judges are all attempted",
    "planning.release_probes:judge": _READ,
    "planning.remedy_steps:steps": _OURS,
    "planning.repair_report:availability": _OURS,
    "planning.repair_report:report": _OURS,
    "planning.switch_drain:carrierless": _READ,
    "planning.switch_drain:lost": _READ,
    "planning.vrf_difference:difference": _READ,
    "planning.webhooks:secret_of": _OURS,
    "planning.webhooks:signature": _OURS,
    "redfish.indicator:shows": _READ,
    "tickets.webhook:signature": _OURS,
    "planning.vrf_obstacles:obstacles": _READ,
    "planning.vrf_plan:merge": _OURS,
    "playbooks.events:redacted": "attempted through playbooks.events:Events",
    "switches.sonic:apply_patch": _OURS,
    "switches.sonic:patch": _READ,
}
# modules that decode without a reader of their own: what they decode comes from us, or goes there
DECODE_FOR: Mapping[str, str] = {
    "api.app": "api.app:_checked",
    "api_client": "redfish.sse:SseReader",
    "api.certificates": "planning.attestation:opened",
    "api.tenants": "api.app:_checked",
    "control.engine_dbos": _OURS,
    "event_intake": "planning.pushed_alerts:told",
    "ports.wire": "redfish.messages:body_of",
    "sonic_reading": "switches.sonic:read_tree",
    "execution.erasure": _OURS,
    "execution.fabric_tests": _OURS,
    "execution.image_conversion": "qemu-img's own JSON, of an image whose digest was checked",
    "execution.validator": _OURS,
    "planning.diagnosis": _OURS,
    "planning.limits": _OURS,
    "planning.remedies": _OURS,
    "playbooks.folder": _OURS,
    "playbooks.inventory": _OURS,
    "redfish.governor": _OURS,
    "site_clock": _OURS,
    "watch_file": _OURS,
    "tickets.webhook": "an id and a URL, by name, of bounded length",
}


def _listed() -> tuple[Parser, ...]:
    return tuple(
        Parser(f"{module}:{name}", feeding.fed(f"{module}:{name}", others), may_raise)
        for module, may_raise, names, others in _LISTED
        for name in names.split()
    )


PARSERS: tuple[Parser, ...] = (
    *_listed(),
    Parser("api.app:_checked", feeding.api_bodies, (ValidationError,)),
    Parser("execution.bundles:verify", feeding.archive, (InputError,)),
    Parser("planning.pushed_alerts:told", feeding.webhook, ()),
    Parser("playbooks.events:Events", feeding.playbook, ()),
    Parser("redfish.sse:SseReader", feeding.stream_of, (TooLarge,)),
)
