"""Evidence of attestation in files, also of other verifiers, judged without a daemon."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="evidence_files",
    about="Signed evidence of devices in files, with makers' CoRIM and SWID manifests.",
    commands={"attest": "provisioner.integrations.evidence_files.evidence_commands:app"},
)
