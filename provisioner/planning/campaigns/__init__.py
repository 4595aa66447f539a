"""Rolling upgrades decided: preview, limits, waves, windows, stops. Pure."""
