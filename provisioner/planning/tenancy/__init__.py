"""Tenants' networks: VRFs, partitions, quotas, and the differences to correct. Pure."""
