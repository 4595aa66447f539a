"""DHCP servers: their leases beside the expected-hardware list, and files for an empty network."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="dhcp",
    about="Leases of Kea, dnsmasq and ISC dhcpd.",
    leases="provisioner.integrations.dhcp.leased_addresses:read_leased",
    commands={"discover": "provisioner.integrations.dhcp.discover_commands:app"},
)
