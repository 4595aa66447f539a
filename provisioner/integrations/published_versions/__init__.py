"""Versions that makers publish, in files and on pages, drafted as an overlay of the matrix."""

from provisioner.runtime.integrations import Integration

_COMMANDS = "provisioner.integrations.published_versions.import_commands"
INTEGRATION = Integration(
    name="published_versions",
    about="Versions that makers publish: catalogues, packages, release notes, images.",
    commands={
        "matrix refresh": f"{_COMMANDS}:refresh_versions",
        "matrix fill": f"{_COMMANDS}:fill_versions",
    },
)
