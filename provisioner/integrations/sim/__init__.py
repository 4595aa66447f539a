"""A simulated site with true update semantics. It imports nothing of the code under test."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="sim",
    about="A simulated site of BMCs, hosts and switches.",
    commands={"sim": "provisioner.integrations.sim.sim_commands:app"},
)
