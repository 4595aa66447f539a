"""Decisions: pure functions of values. No I/O, no clock, no chance; `now` and `rng` are passed in."""
