"""The daemon's side of a simulated site: agents, plays and commands over the simulator's socket."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="simulated_site",
    about="What `serve --simulator` drives.",
    simulated_site="provisioner.integrations.simulated_site.simulated_agents:SimulatedRunner",
)
