"""Racks in the daemon: approved campaigns, the water of all racks, and what is certified."""
