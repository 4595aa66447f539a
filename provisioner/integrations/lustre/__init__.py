"""Lustre and EXAScaler: tenants' spaces as nodemaps with a fileset, by `lctl` on the MGS."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="lustre",
    about="Tenants' shared storage on Lustre or EXAScaler: nodemaps, by lctl over SSH.",
    spaces="provisioner.integrations.lustre.spaces:open_spaces",
)
