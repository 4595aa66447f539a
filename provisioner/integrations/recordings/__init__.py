"""One BMC without a daemon: read, recorded without a site's values, judged, written to."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.recordings.recording_commands"
INTEGRATION = Integration(
    name="recordings",
    about="One BMC without a daemon: read, recorded without a site's values, written to.",
    commands={
        "inspect": "provisioner.integrations.recordings.inspect_commands:inspect",
        "record": f"{_COMMANDS}:record",
        "bmc": "provisioner.integrations.recordings.bmc_commands:app",
        "compatibility": f"{_COMMANDS}:compatibility",
    },
)
