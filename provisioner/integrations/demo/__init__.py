"""The demonstration: the daemon and a simulated site, on one machine."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="demo",
    about="The whole journey of a simulated rack.",
    commands={"demo": "provisioner.integrations.demo.demo_commands:demo"},
)
