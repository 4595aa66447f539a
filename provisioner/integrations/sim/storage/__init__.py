"""A simulated management system of shared storage; it shares no code with the adapter."""
