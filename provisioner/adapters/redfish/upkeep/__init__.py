"""The state of a BMC and its chassis beside the firmware: leak detectors, time, consoles."""
