"""Adapters to power distribution units, behind `ports.power.Pdu`; none keeps a state of its own."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="outlets",
    about="Power outlets of PDUs: over Redfish, SNMP, or a command of the site.",
    switched_on=lambda settings, _: bool(settings.pdus),
    outlets="provisioner.integrations.outlets.opening:build_pdus",
    commands={"pdu": "provisioner.integrations.outlets.pdu_commands:app"},
)
