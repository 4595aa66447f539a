"""A simulated site with true update semantics. Imports nothing of what it tests."""
