"""The fabric's graph for schedulers and monitors: Slurm, Kubernetes, Prometheus."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.topology.topology_commands"
INTEGRATION = Integration(
    name="topology",
    about="The cabled fabric as schedulers and monitors read it.",
    commands={"topology": f"{_COMMANDS}:app"},
)
