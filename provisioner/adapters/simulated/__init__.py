"""Agents and playbook runs of a simulated site, behind the same ports as the real ones."""
