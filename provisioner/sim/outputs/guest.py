"""A guest: a real system behind a simulated host, for what no output can stand in for.

A program outside starts and ends it by the power, the boot id and the configuration drive of the
host. Lines that change accounts of the system run in the guest; hardware stays simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.outputs.host import Output

IN_GUEST = ("tenant_login=; ",)  # beginnings of the lines that run there
LIMIT_S = 600.0  # of real time: a guest may be starting


async def run_in_guest(program: Sequence[str], boot_id: str, line: str) -> Output:
    """Run a shell line in the guest; the program's last words are the host's boot id and it."""
    process = await asyncio.create_subprocess_exec(
        *program,
        boot_id,
        line,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Output(None, "", "")
    return Output(
        process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    )


def describe_guest(machine: Machine) -> dict[str, Any]:
    """Return whether the host's own system runs, of which boot, and its configuration drive."""
    disk = next((d for d in machine.disks.values() if d.bootable and d.device.present), None)
    runs = machine.host.phase == "up" and machine.host.os == "disk" and disk is not None
    return {
        "boot_id": machine.host.boot_id if runs else None,
        "image": machine.host.system,
        "drive": disk.drive if disk is not None else "",
    }
