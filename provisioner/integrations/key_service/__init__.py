"""OpenBao or Vault, which seals the master key, so that it is on no disk of ours."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="key_service",
    about="The master key sealed by OpenBao or Vault.",
    key_service="provisioner.integrations.key_service.transit_service:TransitService",
)
