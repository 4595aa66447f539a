"""Faults that can be injected into a simulated site."""
