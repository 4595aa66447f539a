"""Faults that a simulated site can be given."""
