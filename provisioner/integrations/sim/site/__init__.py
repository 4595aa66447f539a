"""A simulated site: racks, control, presets, and the truth by which tests judge."""
