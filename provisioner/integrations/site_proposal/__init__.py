"""`provisioner init`: a proposal of a site's own files, from one reading of its devices."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="site_proposal",
    about="A proposed hardware list and overlay, read from BMCs and switches.",
    commands={"init": "provisioner.integrations.site_proposal.init_commands:init"},
)
