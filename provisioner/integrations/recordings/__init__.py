"""Recordings of BMCs without their sites' values, and what they prove of the product."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.recordings.recording_commands"
INTEGRATION = Integration(
    name="recordings",
    about="Recordings of BMCs: made without a site's values, and judged.",
    commands={"record": f"{_COMMANDS}:record", "compatibility": f"{_COMMANDS}:compatibility"},
)
