"""The command line's sign-in at the site's OIDC provider, by the device flow (RFC 8628)."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.command_sign_in.sign_in_commands"
INTEGRATION = Integration(
    name="command_sign_in",
    about="Sign-in of the command line at an OIDC provider.",
    signed_in_token=f"{_COMMANDS}:read_fresh_token",
    commands={"sign-in": f"{_COMMANDS}:sign_in", "sign-out": f"{_COMMANDS}:sign_out"},
)
