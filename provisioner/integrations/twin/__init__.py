"""The twin of a recorded fleet, in which campaigns are rehearsed: the core itself, in memory."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="twin",
    about="Rehearsals of campaigns and first intakes in a simulated copy of the fleet.",
    rehearsals="provisioner.integrations.twin.rehearsal_process:RehearsalProcess",
    commands={"rehearse": "provisioner.integrations.twin.rehearse_commands:rehearse"},
)
