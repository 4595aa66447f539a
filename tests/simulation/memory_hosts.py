"""The ports on hosts, answered by the simulator in this process: those of the twin."""

from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell, Runs

__all__ = ["MemoryRunner", "MemoryShell", "Runs"]
