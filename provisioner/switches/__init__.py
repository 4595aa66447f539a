"""How a switch's operating system speaks: bodies to send, answers read. Pure: no I/O."""

from types import ModuleType

from provisioner.switches import cumulus, sonic

ALL: dict[str, ModuleType] = {"cumulus": cumulus, "sonic": sonic}
