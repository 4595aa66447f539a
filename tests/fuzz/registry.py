"""The list of all readers of foreign words: attempted, or not, and then why not.

test_registry.py holds it against the sources, so that a new parser cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import feeding
from attestation_readers import ATTESTATION_BESIDE, ATTESTATION_READERS
from feeding import Parser
from host_readers import HOST_READERS
from import_readers import IMPORT_READERS
from kubernetes_readers import KUBERNETES_BESIDE, KUBERNETES_READERS
from lease_readers import LEASE_READERS
from pydantic import ValidationError
from record_readers import RECORD_BESIDE, RECORD_DECODERS, RECORD_READERS
from redfish_readers import REDFISH_READERS

from provisioner.api.problem import Refused
from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.fabric import fabric_workloads
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.integrations.cumulus import switch_state as cumulus_state
from provisioner.integrations.outlets.outlet_tables import TABLES
from provisioner.integrations.scim.resources import ScimError
from provisioner.integrations.signed_files.bundle_reading import NotABundle
from provisioner.integrations.signed_files.log_proofs import NotALog
from provisioner.integrations.signed_files.witnessing import BadPolicy, parse_policy
from provisioner.integrations.sonic.config_db import Configuration
from provisioner.integrations.syslog_intake.messages import NotASyslogStream
from provisioner.model.erasure import Disk, Method
from provisioner.model.fabric_session import RailRun
from provisioner.model.input_error import InputError
from provisioner.model.location import Bond
from provisioner.model.tenant_network import NetworkChange, RoutePolicy, VrfNetwork
from provisioner.planning.certification.attestation import NotAnAttestation
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import PortError, TooLarge

# the key of a public witness, as its operator publishes it
WITNESSES = """witness w remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2
quorum w
"""
_PORT = RailPort(rail=3, device="mlx5_3", address="172.0.0.0", gpu=3)
_ENDS = tuple(Member(node=n, address="10.0.0.1", rails=(_PORT,)) for n in ("a", "b"))
RDMA = fabric_workloads.build_rdma_pair_test(*_ENDS, 3)
NCCL = fabric_workloads.build_nccl_rail_test(_ENDS, 3)
CONTEXT = CheckContext(gpu_model="H100")
DISK = Disk(name="/dev/nvme0n1", serial="S1", size_bytes=2**40)
NAMES = {"gpu0": "gpu0", "GPU_SXM_1": "gpu0", "0000:1b:00": "gpu1"}
NETWORKS = NetworkChange(vrfs={"RED": VrfNetwork()}, policies={"x": RoutePolicy(("::/0",))})
_FABRIC_OUTPUTS = "execution.validate.fabric_outputs"
_NETWORK_TREE = "integrations.cumulus.tenant_networks"
_FILE = {"source": "own.yaml"}
_CHECKS = (Unreadable,)
# module, what may leave its functions, the functions, and those of their parameters that are ours
_LISTED: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("access.oidc", (ValueError,), "_keys_of", {}),
    ("access.oidc_sign_in", (), "read_question", {}),
    (
        "adapters.agent.service",
        (PortError,),
        "parse_command parse_commands read_fault",
        {"token": "t" * 40},
    ),
    ("adapters.agent.protocol", (), "parse_heartbeat normal_mac make_printable", {}),
    (
        "integrations.racks.identity",
        (),
        "read_gpu_place read_cartridge",
        {"name": "GPU_0"},
    ),
    ("integrations.racks.identity", (), "read_switch_place read_supply", {}),
    ("integrations.racks.fabric.fabric_gate", (), "read_fabric", {"tray": "t0"}),
    ("integrations.racks.duty.switch_bundle", (ValueError,), "read_bundle", {}),
    ("integrations.racks.fabric.imex_gate", (), "read_imex", {}),
    ("integrations.racks.fabric.nccl_gate", (), "read_nccl", {}),
    ("integrations.racks.fabric.link_gate", (ValueError,), "read_links", {}),
    (
        "integrations.racks.partitions.tenant_partitions",
        (ValueError,),
        "read_gpus read_partitions read_running read_switch_nodes",
        {},
    ),
    ("integrations.racks.nvue", (), "read_images read_versions read_files read_job", {}),
    ("integrations.racks.nvue", (), "read_controller", {"switch": "s0", "tray_index": 0}),
    ("integrations.building_water.signals", (), "load_body", {}),
    ("integrations.building_water.signals", (), "_read_states", {"kind": "RackLeakDetect"}),
    (
        "integrations.building_water.signals",
        (),
        "read_numbers",
        {"words": {True: frozenset({"isolaterequest"}), False: frozenset({"notrequested"})}},
    ),
    (
        "integrations.racks.firmware_object",
        (InputError,),
        "read_firmware_object",
        {"source": "f.json"},
    ),
    ("integrations.outlets.redfish_pdu", (), "parse_power_state", {}),
    ("integrations.outlets.redfish_pdu", (), "find_power_target", {"asked": "Off"}),
    ("integrations.outlets.redfish_pdu", (PortError,), "link_path", {"name": "Outlets"}),
    (
        "integrations.outlets.outlet_tables",
        (),
        "parse_index parse_state",
        {"table": TABLES["sentry4"]},
    ),
    ("integrations.outlets.command_pdu", (), "parse_printed_state", {}),
    ("integrations.ipmi_consoles.ipmitool", (), "read_failure", {"name": "n1/host"}),
    (
        "integrations.lustre.nodemaps",
        (PortError,),
        "parse_params parse_ranges parse_filesets parse_nodemaps",
        {},
    ),
    ("integrations.lustre.nodemaps", (), "is_net is_nid is_path", {}),
    ("integrations.vast.mount_trials", (), "read_words", {}),
    ("api.changes", (Refused,), "decode_cursor", {}),
    ("integrations.signed_files.log_proofs", (NotALog,), "parse_bundle", {}),
    (
        "integrations.signed_files.log_proofs",
        (NotALog,),
        "open_checkpoint",
        {"is_signed": lambda *_: True},
    ),
    ("integrations.signed_files.witnessing", (BadPolicy,), "parse_policy", {}),
    ("integrations.signed_files.witnessing", (BadPolicy,), "read_verifier_key", {"kind": 4}),
    (
        "integrations.signed_files.witnessing",
        (BadPolicy,),
        "read_cosignatures",
        {"policy": parse_policy(WITNESSES)},
    ),
    (
        "integrations.signed_files.witnessing",
        (BadPolicy,),
        "read_own_lines",
        {"note": "log\n1\nroot\n\n", "policy": parse_policy(WITNESSES), "name": "w"},
    ),
    ("adapters.redfish.discovery", (InputError,), "parse_network", {}),
    ("checks.readers.tool_output", _CHECKS, "read_resources", {}),
    ("checks.readers.dcgm_document", _CHECKS, "read_tests read_multi_node_tests", {}),
    ("checks.readers.dcgm_document", _CHECKS, "read", {}),
    ("checks.readers.sysfs", (ValueError,), "read_gid", {}),
    ("checks.readers.sysfs", (), "pci_of_interface", {}),
    ("checks.readers.tool_output", _CHECKS, "find_documents find_document", {"subject": "x"}),
    ("model.location", (), "is_ip_address", {}),
    ("planning.watch.membership", (), "read_standing", {"id_": "b"}),
    ("planning.watch.log_text", (), "clean_line", {}),
    ("integrations.syslog_intake.log_intake", (ValueError,), "read_counts read_ports", {}),
    ("integrations.webhooks.outbound", (), "refuse_host refuse_address", {"networks": ()}),
    ("integrations.syslog_intake.messages", (NotASyslogStream,), "read_message find_frame", {}),
    ("planning.erasure.bmc_defaults", (), "judge_owner_keys", {"own": ()}),
    (
        "checks.readers.kernel_lines",
        _CHECKS,
        "find_faults is_fault_line read_words is_attachment",
        {},
    ),
    (
        "checks.readers.kernel_lines",
        _CHECKS,
        "kernel_lines begins_at_boot is_greeting read_level",
        {},
    ),
    ("checks.readers.optic_modules", _CHECKS, "looks_like_links", {}),
    ("checks.lldp", (), "read_ends", {"names": {}, "known": {("leaf", "swp1")}}),
    ("checks.readers.mlxlink_ports", _CHECKS, "read", {}),
    ("checks.readers.mlxlink_ports", _CHECKS, "parse_ports", {}),
    ("checks.readers.nccl_output", _CHECKS, "read", {}),
    ("checks.readers.nic_listing", _CHECKS, "read_cards", {}),
    ("checks.readers.nic_listing", _CHECKS, "read_settings normalize_value", {}),
    ("checks.readers.nvbandwidth_output", _CHECKS, "read_cases", {}),
    ("checks.readers.nccl_output", _CHECKS, "read_bandwidths read_latencies", {}),
    ("checks.readers.nvbandwidth_output", _CHECKS, "looks_like_ras read_ras_events", {}),
    ("checks.readers.tool_output", _CHECKS, "split_lines", {}),
    (
        "checks.readers.tool_output",
        _CHECKS,
        "parse_json parse_number require_object require_list require_text parse_documents",
        {"subject": "x"},
    ),
    ("checks.readers.smi_query", _CHECKS, "read strip_end", {}),
    ("checks.readers.smi_sentences", _CHECKS, "find_sentence", {}),
    ("checks.storage_load", _CHECKS, "read_jobs", {}),
    ("checks.readers.sysfs", _CHECKS, "parse_files", {}),
    ("checks.xid.xid_events", _CHECKS, "find_events", {}),
    ("checks.readers.kernel_lines", _CHECKS, "parse_log_line", {}),
    ("ports.wire", (), "plain_text status_words", {}),
    ("ports.wire", (ValueError, RecursionError), "parse_marked parse_sound", {}),
    ("execution.observe.cable_ends", (), "read", {}),
    ("execution.validate.fabric_outputs", (), "parse_sections", {}),
    ("execution.steps.deployment", (), "parse_root_disks", {}),
    ("execution.validate.fabric_outputs", (), "rdma_rail", {"test": RDMA, "context": CONTEXT}),
    (
        "execution.validate.fabric_outputs",
        (),
        "nccl_rail",
        {"run": RailRun(rail=3, shown="pass"), "test": NCCL, "context": CONTEXT},
    ),
    ("checks.readers.nccl_log", (), "read_log", {}),
    ("checks.fabric.training_step", (), "read_training", {}),
    (_FABRIC_OUTPUTS, (), "read_logs", {}),
    (_FABRIC_OUTPUTS, (), "judge_collective", {"tests": (NCCL,), "context": CONTEXT}),
    ("execution.tenancy.release_recheck", (), "read_codes", {}),
    *ATTESTATION_READERS,
    *KUBERNETES_READERS,
    ("planning.places.address_plan", (InputError,), "parse", _FILE),
    ("integrations.places.front_bonds", (InputError,), "parse", {**_FILE, "plan": AddressPlan()}),
    ("planning.certification.attestation", (NotAnAttestation,), "parse_envelope", {}),
    ("planning.campaigns.campaign_policy_text", (InputError,), "parse_policy", _FILE),
    ("planning.path.conditions", (ValueError,), "parse_terms", {}),
    (
        "planning.release.tenant_login",
        (),
        "judge_minimums",
        {"node": feeding.NODES[0], "minimums": ()},
    ),
    (
        "planning.release.tenant_login",
        (),
        "judge_removal",
        {"node": feeding.NODES[0], "admitted": False},
    ),
    ("planning.release.tenant_login", (ValueError,), "parse_public_key", {}),
    (
        "planning.release.tenant_login",
        (),
        "judge_login",
        {"node": feeding.NODES[0], "user": "tenant", "keys": ("ssh-ed25519 AAAA",)},
    ),
    ("planning.erasure.disk_answers", (), "parse_disks read_back", {"node": "su0-n01"}),
    ("planning.erasure.disk_answers", (), "step_result", {}),
    (
        "planning.erasure.disk_answers",
        (),
        "record_erasure",
        {"disk": DISK, "method": Method.SANITIZE_CRYPTO, "started_at": 1.0, "ended_at": 2.0},
    ),
    ("planning.erasure.disk_answers", (), "strip_control_characters", {"size_max": 40}),
    ("planning.certification.escalation", (), "read_history", {"slots": NAMES}),
    ("integrations.signed_files.bundle_reading", (NotABundle,), "unpack_bundle envelope_of", {}),
    ("integrations.signed_files.bundle_reading", (), "list_bundle_objections", {"members": {}}),
    (
        "planning.repair.evidence_bundle",
        (),
        "evidence_file",
        {"name": "dump crash", "digest": "d", "secrets": ("a secret",)},
    ),
    ("planning.lifecycle.explain", (), "clean_text", {}),
    ("planning.intake.expected_text", (InputError,), "parse", _FILE),
    *HOST_READERS,
    *IMPORT_READERS,
    *LEASE_READERS,
    *RECORD_READERS,
    ("model.names", (), "find_pci", {}),
    ("model.names", (), "is_named", {"names": ("leaf-0/swp1",)}),
    ("planning.repair.part_names", (), "slot_in", {"names": NAMES}),
    ("integrations.ufm.partitions", (), "read_guid read_partitions read_subnet_keys", {}),
    ("planning.certification.regression", (), "parse_outputs", {}),
    ("planning.watch.log_text", (), "scrub_text", {}),
    (
        "planning.campaigns.select_expression",
        (InputError,),
        "parse",
        {**_FILE, "fields": ("node", "rack")},
    ),
    (
        "planning.campaigns.select_expression",
        (InputError,),
        "select",
        {**_FILE, "nodes": feeding.NODES},
    ),
    ("planning.matrix.thresholds_text", (InputError,), "parse", _FILE),
    ("api.routes.finding", (), "rank_text", {"wanted": "n1"}),
    ("integrations.playbooks.events", (), "make_readable", {}),
    ("quirks", (), "identify", {}),
    *REDFISH_READERS,
    (
        "integrations.cumulus.nvue_calls",
        (),
        (
            "read_revision_id read_revision read_revisions read_vrf read_denied read_apart "
            "read_description read_names read_routes read_images read_job_id read_job"
        ),
        {},
    ),
    ("integrations.cumulus.port_filter", (), "read_filter", {}),
    ("integrations.cumulus.port_filter", (), "read_filters read_bound", {}),
    ("integrations.cumulus.port_filter", (), "encode_guards", {"change": NETWORKS}),
    (_NETWORK_TREE, (PortError,), "read_networks read_bound", {}),
    (_NETWORK_TREE, (PortError,), "read_vnis", {"vrf": "RED"}),
    (_NETWORK_TREE, (), "read_subtree", {"path": ("router", "bgp")}),
    (_NETWORK_TREE, (), "find_missing_tree", {"desired": {"router": {"bgp": {"x": "on"}}}}),
    (_NETWORK_TREE, (), "encode_change", {"change": NETWORKS, "version": "5.12.1.100"}),
    ("integrations.cumulus.tenant_networks", (), "read_states read_targets", {}),
    (
        "integrations.cumulus.services",
        (),
        (
            "read_drained read_ports read_bytes read_counters read_sessions read_vnis read_health "
            "read_asic"
        ),
        {},
    ),
    (
        "integrations.cumulus.switch_state",
        (cumulus_state.Unreadable,),
        (
            "find_object read_routes read_peers read_imports read_targets read_neighbours "
            "read_macs read_lldp read_heard read_issues read_number vrf_of configured_targets "
            "configured_peers find_listening_vrfs"
        ),
        {},
    ),
    ("integrations.cumulus.switch_state", (), "digest", {}),
    (
        "integrations.cumulus.bonds",
        (cumulus_state.Unreadable,),
        "find_bonds",
        {"interfaces": ("v9",)},
    ),
    ("integrations.cumulus.bonds", (cumulus_state.Unreadable,), "read_members", {"bond": "bond1"}),
    (
        "integrations.cumulus.bonds",
        (cumulus_state.Unreadable,),
        "compare_bonds",
        {"bonds": {"vlan9": Bond(name="bond1", members=("swp1",), mlag=9)}, "version": "5.11"},
    ),
    (
        "integrations.cumulus.bonds",
        (cumulus_state.Unreadable,),
        "read_bond",
        {"interface": "vlan9", "bond": "bond1", "now": {}, "segments": {}, "mlag": {}},
    ),
    (
        "integrations.cumulus.switch_state",
        (cumulus_state.Unreadable,),
        "find_unsaved",
        {"startup": {"interface": {"swp1": {}}}},
    ),
    (
        "integrations.cumulus.switch_state",
        (cumulus_state.Unreadable,),
        "read_port",
        {"neighbours": frozenset(), "meant": ({}, {})},
    ),
    ("integrations.optics.host_ends", (), "list_serials", {}),
    ("integrations.optics.series", (), "read_frames", {}),
    ("integrations.scim.paths", (ScimError,), "parse_filter", {}),
    ("integrations.scim.resources", (ScimError,), "read_document", {}),
    ("integrations.scim.resources", (ScimError,), "parse_flag parse_text", {"name": "active"}),
    ("integrations.cumulus.link_reading", (), "read_optic read_queues read_signal", {}),
    ("integrations.sonic.link_reading", (), "read_optic read_queues", {}),
    ("integrations.sonic.link_reading", (), "list_queue_ids", {"interface": "Ethernet0"}),
    ("model.link_reading", (), "parse_value parse_lanes", {"quantity": "rx_dbm"}),
    ("model.link_reading", (), "clean_words", {"length": 32}),
    ("integrations.cumulus.revisions", (), "decode_document", {"path": ("qos", "roce")}),
    ("integrations.sonic.config_db", (), "read_configuration read_images", {}),
    (
        "integrations.sonic.config_db",
        (),
        "read_kernel",
        {"applied": Configuration(frozenset(), {}, {})},
    ),
    ("integrations.sonic.config_db", (), "read_platform", {"serial": "S1"}),
    ("integrations.sonic.acl_rows", (ValueError,), "read_active", {"configured": None}),
    (
        "integrations.sonic.switch_state",
        (),
        (
            "read_drained read_health read_neighbours read_routes read_peers read_leaks read_vnis "
            "read_targets read_hash read_counters read_macs read_heard"
        ),
        {},
    ),
    ("telemetry.logs", (), "scrub", {}),
    ("integrations.sonic.switch_state", (), "read_lldp read_port_id", {"port": "Ethernet0"}),
)
_OURS = "it takes what we made ourselves"
_READ = "it takes what was read, and bounded, before"
_JUDGES = "a part of judges, which are all attempted"
_OF_THE_LOG = (
    *("build_entry", "encode_entry", "fold_subtrees", "hash_leaf", "hash_pair", "identify_key"),
    *("write_checkpoint", "write_note", "write_verifier_key"),
)
_OF_TOPOLOGY = ("build_targets", "group_pods", "group_units", "list_uncabled", "write_gnmic")
TOPOLOGY_BESIDE = {f"integrations.topology.graph:{name}": _OURS for name in _OF_TOPOLOGY}
EVIDENCE_LOG_BESIDE = {
    **{f"planning.certification.evidence_log:{n}": _OURS for n in _OF_THE_LOG},
    "integrations.signed_files.log_proofs:has_grown": _OURS,
    "integrations.signed_files.log_proofs:is_included": _OURS,
    "integrations.signed_files.log_proofs:is_note_signed": "it verifies a signature over text",
}
NOT_ATTEMPTED: Mapping[str, str] = {
    **ATTESTATION_BESIDE,
    **RECORD_BESIDE,
    **KUBERNETES_BESIDE,
    "access.identity:caller_of": _READ,
    "integrations.cumulus.link_reading:signal_path": _OURS,
    "integrations.cumulus.tenant_networks:merge_tree": _OURS,
    "planning.erasure.deployment:plan_network": _OURS,
    "planning.erasure.deployment:build_metadata": _OURS,
    "integrations.evidence_files.reading:detect_model": _JUDGES,
    "integrations.racks.identity:find_shelves": _READ,
    "integrations.racks.membership:find_other_serial": _READ,
    "adapters.agent.service:digest_of": _OURS,
    "model.machine.settings:add_pin": _OURS,
    "model.machine.settings:split_pins": _OURS,
    "planning.lifecycle.credential_rotation:parse_subject": _OURS,
    "runtime.integrations:list_loops": _OURS,
    "runtime.integrations:open_optic_series": _OURS,
    "api.app:build_response": _OURS,
    "api.openapi:add_meanings": _OURS,
    "api.openapi:list_fields": _OURS,
    "checks.check:fault": _JUDGES,
    "checks.counter_growth:find_before_load": _JUDGES,
    "checks.fabric.fabric_checks:judge_test": (
        "attempted through execution.fabric_outputs:rdma_rail"
    ),
    "model.link_reading:make_limits": "attempted through both drivers' read_optic",
    "daemon.cluster:declared_end": _OURS,
    "runtime.bounded_listener:hear": "it takes a connection, and marks it",
    "runtime.bounded_listener:prove": "it takes a connection, and marks it",
    "runtime.bounded_listener:should_end": "it takes a connection, and asks for its mark",
    "daemon.cluster:digests_of": _OURS,
    "execution.artifacts.artifacts:fill_slots": "it takes an image whose digest was checked",
    "integrations.matrix_tools.deciding.contradictions:find_empty_condition": _READ,
    "planning.matrix.matrix_text:is_base": "reads by `located_yaml.load`, as `parse` of its module",
    "planning.matrix.matrix_text:parse_located": "attempted through `parse` of its module",
    "planning.path.refusals:name_sought": _OURS,
    "planning.watch.membership:digest_text": _OURS,
    "planning.campaigns.select_expression:read_stored": _OURS,
    "planning.lifecycle.timeline:list_stays": _OURS,
    "planning.lifecycle.usage:follow_event": "any rows in tests/planning/test_usage.py",
    "planning.lifecycle.usage:fold_journal": "any rows in tests/planning/test_usage.py",
    "integrations.playbooks.events:list_tasks": "its lines are hostile in tests/playbooks",
    "integrations.playbooks.folder:read_secrets": _OURS,
    "api.routes.events:build_event": _OURS,
    "api.routes.node_actions:read_play": _OURS,
    "integrations.playbooks.opening:list_play_tasks": _OURS,
    "runtime.integrations:list_play_tasks": _OURS,
    "api.routes.node_actions:find_bmc": _OURS,
    "api.routes.node_actions:describe_sent": _OURS,
    "api.fleet_atlas:parse_where": "it is select_expression.parse, which is attempted",
    "planning.watch.journal_lines:describe_row": _OURS,
    "planning.watch.journal_lines:format_fields": _OURS,
    "runtime.shipped:point_to_pages": _OURS,
    "runtime.whole_files:replace_file": "it writes what it is given",
    "runtime.whole_files:write_private": "it writes what it is given",
    "runtime.integrations:find_signed_in_token": _OURS,
    "model.host_filter:may_overwrite": _READ,
    "model.host_filter:read_label": _READ,
    "integrations.cumulus.nvue_calls:read_addresses": _READ,
    "integrations.cumulus.nvue_calls:read_sent": _READ,
    "checks.readers.kernel_lines:is_harmless": _JUDGES,
    "checks.readers.kernel_lines:find_virtual_drives": _JUDGES,
    "checks.readers.kernel_lines:is_of_drives": _JUDGES,
    "checks.readers.optic_modules:judge_links": _JUDGES,
    "checks.readers.mlxlink_ports:read_ports": _JUDGES,
    "checks.readers.optic_modules:read_modules": _JUDGES,
    "checks.readers.rdma_port_counters:read_growth": _JUDGES,
    "checks.readers.rdma_port_counters:read_counters": _JUDGES,
    "checks.readers.tool_output:read_output": _JUDGES,
    "checks.readers.smi_query:read_gpus": _JUDGES,
    "checks.readers.smi_query:read_table": _JUDGES,
    "control.engine.overload:measure_load": _OURS,
    "integrations.racks.partitions.nmx_client:encode_form": _OURS,
    "daemon.events:sign_request": _OURS,
    "planning.intake.host_tools:read_facts": "attempted through host_look:read_sets",
    "integrations.air_gap_bundles.bundle_files:unpack": "it believes what `verify` reads",
    "planning.repair.evidence_bundle:digest": _OURS,
    "planning.repair.evidence_bundle:pack_bundle": _OURS,
    "planning.repair.evidence_bundle:text_file": "attempted through evidence_file",
    "planning.certification.attestation:encode_for_signing": _OURS,
    **EVIDENCE_LOG_BESIDE,
    **TOPOLOGY_BESIDE,
    "planning.certification.attestation:write_envelope": _OURS,
    "planning.repair.case_policy:describe_request": _OURS,
    "planning.repair.case_policy:make_notice": _OURS,
    "planning.certification.fault_rates:judge_fault_rate": _OURS,
    "planning.erasure.deployment:write_command": _OURS,
    "integrations.cumulus.nvue_calls:move_ports": _OURS,
    "planning.release.release_cables:find_gaps": (
        "attempted through integrations.cumulus.host_filter:read_filter"
    ),
    "planning.release.release_cables:judge_probes": _READ,
    "planning.release.port_isolation:make_leak_blocker": _READ,
    "planning.certification.regression:rejudge_report": (
        "raw_outputs reads it, and judges are all attempted"
    ),
    "planning.release.release_probes:judge": _READ,
    "planning.repair.remedies:plan_steps": _OURS,
    "planning.repair.repair_report:compute_availability": _OURS,
    "planning.repair.repair_report:make_report": _OURS,
    "planning.lifecycle.admission:find_lost_carriers": _READ,
    "planning.lifecycle.journey:enter_state": _OURS,
    "planning.lifecycle.admission:find_losses": _READ,
    "planning.tenancy.vrf_difference:plan_leaf_change": _READ,
    "integrations.webhooks.posted_events:secret_of": _OURS,
    "integrations.webhooks.posted_events:make_signature": _OURS,
    "adapters.redfish.accounts:is_shown": _READ,
    "integrations.tickets.webhook:signature": _OURS,
    "planning.tenancy.vrf_difference:list_obstacles": _READ,
    "integrations.playbooks.events:redact_secrets": "attempted through playbooks.events:Events",
    "integrations.cumulus.revisions:encode_body": "it is given bodies of our own",
    "integrations.sonic.acl_rows:list_bound_ports": ("attempted in tests/switches/test_sonic.py"),
    "integrations.sonic.acl_rows:list_ports": "attempted in tests/switches/test_sonic.py",
    "integrations.sonic.acl_rows:pick_tables": _READ,
    "integrations.sonic.acl_rows:plan_steps": _READ,
    "integrations.sonic.acl_rows:read_filter": "attempted in tests/switches/test_sonic.py",
    "integrations.sonic.config_db:apply_patch": _OURS,
    "integrations.sonic.config_db:name_patch": _OURS,
    "integrations.sonic.config_db:plan_patch": _READ,
}
# modules that decode without a reader of their own: what they decode comes from us, or goes there
DECODE_FOR: Mapping[str, str] = {
    **RECORD_DECODERS,
    "planning.watch.membership": "planning.watch.membership:read_standing",
    "integrations.evidence_files.reading": _OURS,  # evidence that this program collected
    "integrations.racks.plan": _OURS,  # the plan that a person wrote
    "integrations.racks.rack_update": _OURS,  # lines of its own journal
    "integrations.racks.update_log": _OURS,
    "integrations.racks.update_start": _OURS,
    "integrations.racks.reading": "integrations.racks.identity:read_switch_place",
    "api.app": "api.app:_checked",
    "model.shipped_tables": _OURS,  # tables of the program
    "checks": _OURS,  # another
    "api.openapi": _OURS,  # a document that pydantic wrote
    "cli.client.connection": _OURS,
    "api.routes.node_reports": _OURS,
    "api.routes.site": _OURS,
    "api.routes.usage": _OURS,
    "adapters.consoles.console_files": _OURS,
    "adapters.machine_logs": _OURS,
    "execution.observe.inband": _OURS,  # evidence that this program collected
    "api.routes.certificates": "planning.certification.attestation:parse_envelope",
    "api.routes.tenants": "api.app:_checked",
    "control.engine.engine_dbos": _OURS,
    "control.node.observer": _OURS,
    "daemon.events": "planning.watch.pushed_alerts:parse_push",
    "ports.wire": "adapters.redfish.messages:body_of",
    "runtime.switch_systems": ("integrations.sonic.config_db:read_configuration"),
    "execution.steps.bios_defaults": _OURS,
    "execution.steps.bmc_defaults": _OURS,
    "execution.steps.card_storage": _OURS,
    "execution.steps.erasure": _OURS,
    "execution.validate.fabric_tests": _OURS,
    "execution.artifacts.os_images": "qemu-img's JSON, of an image with a checked digest",
    "execution.validate.validator": _OURS,
    "planning.repair.diagnosis": _OURS,
    "planning.campaigns.limits": _OURS,
    "planning.repair.remedies": _OURS,
    "integrations.playbooks.folder": _OURS,
    "adapters.redfish.governor": _OURS,
    "adapters.redfish.dry_run": "adapters.redfish.service:list_actions",
    "runtime.wall_clock": _OURS,
    "daemon.data": _OURS,
    # what the daemon tells it; syslog has readers of its own
    "integrations.syslog_intake.logs_process": _OURS,
    "integrations.tickets.webhook": "an id and a URL, by name, of bounded length",
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
    Parser("integrations.air_gap_bundles.bundle_files:verify", feeding.archive, (InputError,)),
    Parser("planning.watch.pushed_alerts:parse_push", feeding.webhook, ()),
    Parser("integrations.playbooks.events:Events", feeding.playbook, ()),
    Parser("adapters.redfish.eventing.event_stream:SseReader", feeding.stream_of, (TooLarge,)),
)
