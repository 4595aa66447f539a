"""Tenants' networks: VRFs, partitions, quotas, and the changes that bring them about. Pure."""
