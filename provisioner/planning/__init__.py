"""Decisions: pure functions of values. No I/O, no clock; `now` and `rng` are passed in."""
