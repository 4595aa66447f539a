"""Consoles of hosts over IPMI, for BMCs that have none over SSH."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="ipmi_consoles",
    about="Serial consoles over IPMI, by the machine's `ipmitool`.",
    switched_on=lambda settings, _: settings.consoles == "ssh_or_ipmi",
    consoles="provisioner.integrations.ipmi_consoles.ipmitool:open_consoles",
)
