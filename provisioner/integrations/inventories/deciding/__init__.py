"""Decides about records of other systems. Pure: no I/O, no clock, no randomness."""
