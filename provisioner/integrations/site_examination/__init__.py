"""`provisioner doctor`: a site before go-live; it looks at every device, and changes nothing."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="site_examination",
    about="A whole site examined before go-live, with the remedies.",
    commands={"doctor": "provisioner.integrations.site_examination.doctor_commands:doctor"},
)
