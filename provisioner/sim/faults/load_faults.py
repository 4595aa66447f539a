"""Faults that only a load test shows, on one node or between several; no inventory shows them."""

from __future__ import annotations

# name, number in the list of faults, what happens
ALL = (
    ("gpu_wrong_results", "L1", "a GPU computes wrong results under load"),
    ("gpu_slow_under_load", "L2", "a GPU is a sixth slower under load than its siblings"),
    ("hbm_slow", "L3", "a GPU's memory has half its bandwidth"),
    ("loopback_slow", "L4", "a rail's NIC copies at half the speed of its port"),
    ("drive_errors", "L5", "a drive's reads end with an error"),
    ("memory_flips_bits", "L6", "the host's memory flips bits under load"),
    ("cable_lossy", "F1", "a rail's cable loses packets: slow with every partner"),
    ("slow_among_nodes", "F2", "a node is slow on all rails, with every partner"),
    ("corrupts_among_nodes", "F3", "what a node sends on rail 2 arrives with wrong values"),
)
