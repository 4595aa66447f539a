"""A simulated site as a whole: racks, control, presets, and the truth to judge by."""
