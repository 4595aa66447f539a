"""Racks, units, rails and ports, and the addresses that belong to them. Pure."""
