"""Playbooks through ansible-runner's own command line, in processes that outlive the daemon."""

from provisioner.runtime.integrations import Integration

_OPENING = "provisioner.integrations.playbooks.opening"
INTEGRATION = Integration(
    name="playbooks",
    about="Playbooks in hosts through ansible-runner.",
    playbooks=f"{_OPENING}:open_runner",
    play_tasks=f"{_OPENING}:list_play_tasks",
)
