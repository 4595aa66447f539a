"""Racks (NVL72): what each BMC is, where it sits, and whether the rack is the planned one."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="racks",
    about="Racks: compute trays, NVLink switches and power shelves, held against the plan.",
    switched_on=lambda settings, _: bool(settings.racks_folder),
    loops="provisioner.integrations.racks.duty.loops:build_loops",
    memberships="provisioner.integrations.racks.partitions.handed_over:open_memberships",
    outlet_users="provisioner.integrations.racks.outlet_users:find_outlet_users",
    routes="provisioner.integrations.racks.rack_routes:ROUTES",
    commands={"rack": "provisioner.integrations.racks.rack_commands:app"},
)
