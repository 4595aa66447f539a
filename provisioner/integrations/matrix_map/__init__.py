"""The matrix as a map: its lines of releases, and the moves between versions."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="matrix_map",
    about="The upgrade paths of the matrix, drawn.",
    commands={"matrix graph": "provisioner.integrations.matrix_map.graph_commands:graph"},
)
