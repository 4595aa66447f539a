"""Virtual time: that of the twin."""

from provisioner.integrations.twin.loop import EPOCH, VirtualClock, VirtualLoop, run

__all__ = ["EPOCH", "VirtualClock", "VirtualLoop", "run"]
