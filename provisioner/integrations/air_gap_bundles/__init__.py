"""Air-gap bundles: firmware, matrix and wheels for a site without a network, in one signed file."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="air_gap_bundles",
    about="Signed bundles for sites without a network.",
    commands={"bundle": "provisioner.integrations.air_gap_bundles.bundle_commands:app"},
)
