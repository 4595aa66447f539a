"""Other systems' records of hosts: NetBox, Ironic, MAAS, NVIDIA's controller, and CSV files.

They are compared with the daemon's hosts, read for adoption, and NetBox is written, too.
"""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="inventories",
    about="Records of hosts in NetBox, Ironic, MAAS, NVIDIA's controller, and CSV files.",
    adoption_sources="provisioner.integrations.inventories.adoption_sources:read_listed",
    commands={
        "netbox": "provisioner.integrations.inventories.netbox_commands:app",
        "compare": "provisioner.integrations.inventories.compare_commands:app",
    },
)
