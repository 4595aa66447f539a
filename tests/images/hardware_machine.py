"""A machine as the ramdisk's tools show it: they print what the real ones print."""

from __future__ import annotations

import json
from typing import Any

from provisioner_hardware_manager.commands import Output


def device(name: str, **more: Any) -> dict[str, Any]:
    """An entry of `lsblk --json`."""
    return {"name": name, "type": "disk", "size": 480103981056, "serial": f"S-{name}",
            "wwn": None, "model": "MODEL  ", "tran": None, "ro": False} | more  # fmt: skip


class Machine:
    """Tools that print what the real ones print."""

    def __init__(self, *listed: dict[str, Any]) -> None:
        self.listed = list(listed)
        self.says: dict[str, Output] = {}

    def run(self, *command: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if command[0] == "lsblk":
            return Output(0, json.dumps({"blockdevices": self.listed}))
        first = " ".join(command[:2])
        if first in self.says:
            return self.says[first]
        return self.says.get(command[0], Output(None, "", "No such file or directory"))
