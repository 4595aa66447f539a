"""Simulated machines: parts, disks, cables, power."""
