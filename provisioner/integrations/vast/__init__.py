"""VAST Data: tenants' spaces, by the REST API of its management system (VMS)."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="vast",
    about="Tenants' shared storage on VAST, by the REST API of its management system.",
    spaces="provisioner.integrations.vast.spaces:open_spaces",
)
