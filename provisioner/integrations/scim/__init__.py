"""SCIM 2.0 (RFC 7643, RFC 7644): the provider says who left, and it holds here at once."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="scim",
    about="People and groups, as an identity provider tells of them (SCIM 2.0).",
    switched_on=lambda settings, _: bool(settings.scim_token_file),
    routes="provisioner.integrations.scim.people:ROUTES",
    doors="provisioner.integrations.scim.door:open_doors",
)
