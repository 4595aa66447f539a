"""A site's signed files, verified by whoever has the file and the site's public keys, no more.

One command goes further: others cosign the head of the evidence log.
"""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.signed_files.verify_commands"
INTEGRATION = Integration(
    name="signed_files",
    about="Signed files, verified: certificates, usage, cases, the log, which others witness.",
    commands={
        "case verify-bundle": f"{_COMMANDS}:verify_bundle",
        "certificate verify": f"{_COMMANDS}:verify",
        "log verify": f"{_COMMANDS}:verify_log",
        "log witness": "provisioner.integrations.signed_files.witness_commands:witness",
        "usage verify": f"{_COMMANDS}:verify_usage",
    },
)
