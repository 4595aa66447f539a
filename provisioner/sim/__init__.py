"""A simulated site with true update semantics. It imports nothing of the code under test."""
