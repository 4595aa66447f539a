"""A site's signed files, verified by whoever has the file and the site's public keys, no more."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.signed_files.verify_commands"
INTEGRATION = Integration(
    name="signed_files",
    about="Certificates, statements of usage, logs and archives of cases, verified in files.",
    commands={
        "case verify-bundle": f"{_COMMANDS}:verify_bundle",
        "certificate verify": f"{_COMMANDS}:verify",
        "log verify": f"{_COMMANDS}:verify_log",
        "usage verify": f"{_COMMANDS}:verify_usage",
    },
)
