"""`provisioner where` and `address`: the site's address plan read by a person, from its file."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="places",
    about="The place of an address, and the addresses of a place, from the address plan.",
    commands={
        "where": "provisioner.integrations.places.place_commands:where",
        "address": "provisioner.integrations.places.place_commands:address",
    },
)
