"""The simulated ironic-python-agent and its commands."""
