"""Rolling upgrades: which node of a campaign goes next, and what is recorded of it."""
