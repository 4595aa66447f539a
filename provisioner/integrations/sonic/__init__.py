"""SONiC, by commands over SSH."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="sonic",
    about="Switches with SONiC, by commands over SSH.",
    switch_system="provisioner.integrations.sonic.system:SYSTEM",
)
