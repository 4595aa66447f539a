"""The building's leak sensors of racks, heard over MQTT (NVIDIA DSX Exchange)."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="building_water",
    about="Leak sensors of the building, by rack, over MQTT.",
    commands={"building-water": "provisioner.integrations.building_water.building_commands:app"},
)
