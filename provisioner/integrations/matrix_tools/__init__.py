"""`provisioner matrix` and `provisioner plan`: a matrix and the way to a release, in files alone.

A daemon reads and judges its own matrix; these need none, for a matrix that is still being written.
"""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="matrix_tools",
    about="A matrix of versions in files: checked, compared, and the steps to a release of it.",
    commands={
        "matrix": "provisioner.integrations.matrix_tools.matrix_commands:app",
        "plan": "provisioner.integrations.matrix_tools.plan_commands:plan",
    },
)
