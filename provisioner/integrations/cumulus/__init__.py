"""Cumulus Linux, over NVUE's REST API."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="cumulus",
    about="Switches with Cumulus Linux, over NVUE's REST API.",
    switch_system="provisioner.integrations.cumulus.system:SYSTEM",
)
