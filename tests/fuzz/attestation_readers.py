"""Readers of signed evidence of devices and boards, as registry.py lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.checks.attestation.endorsement_certificates import Makers
from provisioner.checks.check import Unreadable
from provisioner.integrations.evidence_files.concise_manifests import NotCbor
from provisioner.model.certificate import Unacceptable

_BOARD = "planning.certification.board_identity"
_BOUND = {"bound": b"b" * 32, "enrolled": None, "now": 1.8e9}
ATTESTATION_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("checks.attestation.certificate_chains", (ValueError,), "parse_certificate", {}),
    ("checks.attestation.certificate_chains", (Unacceptable,), "parse_certificates", {}),
    ("checks.attestation.evidence_containers", (), "decode_text read_evidence_file", {}),
    ("checks.attestation.evidence_containers", (), "read_manifest_file", {"name": "own.xml"}),
    ("checks.attestation.event_log", (Unacceptable,), "parse_event_log", {}),
    ("checks.attestation.tpm_quotes", (Unacceptable,), "parse_quote", {}),
    ("checks.attestation.spdm_messages", (Unacceptable,), "parse_opaque_data", {}),
    (
        "checks.attestation.reference_manifests",
        (),
        "read_manifest",
        {"rim_id": "own", "anchors": (), "at": 1.8e9, "admitted_at": 1.8e9},
    ),
    ("checks.attestation.spdm_messages", (Unacceptable,), "parse_signed_measurements", {}),
    (
        "checks.attestation.trust_anchors",
        (ValueError, TypeError),
        "read_anchors",
        {"source": "own.pem"},
    ),
    ("checks.attestation.certificate_chains", (ValueError,), "parse_answer", {}),
    ("checks.attestation.event_log", (Unreadable,), "read_boot_states", {}),
    ("integrations.evidence_files.concise_manifests", (NotCbor,), "parse_cbor", {}),
    (
        "integrations.evidence_files.concise_manifests",
        (),
        "read_concise",
        {"anchors": (), "at": 1.8e9, "admitted_at": 1.8e9},
    ),
    ("integrations.evidence_files.concise_manifests", (), "is_concise", {}),
    (_BOARD, (), "judge_board", _BOUND),
    (_BOARD, (ValueError,), "bind_nonce", {"nonce": b"n" * 32}),
    (
        "planning.certification.board_identity",
        (Unacceptable,),
        "challenge_board",
        {"key_sha256": "0" * 64, "makers": Makers(), "secret": b"s" * 32, "at": 1.8e9},
    ),
    ("checks.attestation.endorsement_certificates", (ValueError,), "parse_makers", {}),
    ("checks.attestation.endorsement_certificates", (Unacceptable,), "read_endorsement", {}),
    ("planning.certification.board_identity", (ValueError,), "parse_boards", {}),
    ("checks.attestation.tpm_quotes", (Unacceptable,), "parse_attestation_key", {}),
)
ATTESTATION_BESIDE: Mapping[str, str] = {
    "checks.attestation.event_log:digest_pcrs": "it takes what was read, and bounded, before",
    "checks.attestation.device_reports:verify_report": (
        "attempted through checks.attestation.spdm_messages:parse_signed_measurements"
    ),
    "checks.attestation.tpm_quotes:name_template": "it takes a key that was parsed before",
    "checks.attestation.tpm_quotes:make_credential": "it writes; its key was read before",
    "planning.certification.board_identity:decode_field": "attempted through judge_board",
    "planning.certification.board_identity:read_detail": "attempted through judge_board",
    "planning.certification.board_identity:judge_opening": (
        "it reads one field, by decode_field, of an answer as challenge_board reads it"
    ),
    "execution.observe.inband:attach_answers": "it takes a text of ours",
    "checks.attested_firmware:parse_answers": "a part of judges, which are all attempted",
    "checks.collected_reports:judge_devices": "a part of judges, which are all attempted",
    "checks.collected_reports:read_reports": "a part of judges, which are all attempted",
    "checks.collected_reports:read_evidences": "a part of judges, which are all attempted",
    "checks.collected_reports:wrap_output": "it writes",
    "checks.collected_reports:find_answer": "a part of judges, which are all attempted",
    "planning.certification.attested_state:read_devices": (
        "attempted through the judge of its check"
    ),
    "planning.certification.attested_state:summarise_devices": (
        "attempted through the judge of its check"
    ),
    "checks.attested_firmware:judge_roots": "a part of judges, which are all attempted",
    "integrations.evidence_files.concise_manifests:write_bytes": "it writes",
    "integrations.evidence_files.concise_manifests:write_text": "it writes",
    "cli.options.checked_options:parse_time": "it takes an option of the command line",
    "checks.attestation.event_log:digest_entries": (
        "attempted through checks.attestation.boot_databases:read_boot_states"
    ),
    "integrations.evidence_files.witnesses:collect_devices": (
        "it verifies what judges read, which are all attempted"
    ),
    "integrations.evidence_files.witnesses:collect_witnessed": (
        "it verifies what judges read, which are all attempted"
    ),
    "checks.attested_firmware:read_rows": "a part of judges, which are all attempted",
    "checks.attested_firmware:verify_row": "a part of judges, which are all attempted",
    "checks.attested_firmware:name_row": "a part of judges, which are all attempted",
    "checks.attested_firmware:read_report": "a part of judges, which are all attempted",
    "planning.certification.attested_state:describe_attestation": "it takes a record of ours",
    "planning.certification.attested_state:parse_evidence": "it takes a record of ours",
    "planning.certification.attested_state:read_roots": "attempted through the judge of its check",
    "planning.certification.attested_state:summarise_boot": (
        "attempted through checks.attestation.boot_databases:read_boot_states"
    ),
    "planning.certification.attested_state:summarise_roots": (
        "attempted through the judge of its check"
    ),
}
