"""UFM: the partitions of an InfiniBand fabric, by its REST API."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="ufm",
    about="Tenants' partitions in an InfiniBand fabric, through UFM.",
    partitions="provisioner.integrations.ufm.isolation:open_partitions",
)
