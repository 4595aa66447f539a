"""BMCs read: printed, recorded without a site's values, and judged by what they prove."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.recordings.recording_commands"
INTEGRATION = Integration(
    name="recordings",
    about="BMCs read: printed, recorded without a site's values, and judged.",
    commands={
        "inspect": "provisioner.integrations.recordings.inspect_commands:inspect",
        "record": f"{_COMMANDS}:record",
        "compatibility": f"{_COMMANDS}:compatibility",
    },
)
