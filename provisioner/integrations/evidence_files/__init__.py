"""Evidence in files, judged without a daemon: attestation, outputs of health checks, Xid lines."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="evidence_files",
    about="Evidence in files: attestation with makers' CoRIM and SWID manifests, health checks.",
    commands={
        "attest": "provisioner.integrations.evidence_files.evidence_commands:app",
        "checks": "provisioner.integrations.evidence_files.check_commands:app",
        "xid": "provisioner.integrations.evidence_files.xid_commands:xid",
    },
)
