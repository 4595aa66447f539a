"""`nvidia-smi --gpu-reset` on a simulated host."""

from __future__ import annotations

import re

from provisioner.sim.hardware.curable_faults import GPU_RESET, cure_faults
from provisioner.sim.outputs.host import HostView, Output


def reset_gpus(view: HostView, command: str) -> Output:
    """`nvidia-smi --gpu-reset` with the services around it stopped and started.

    Files that the command writes under /run stay until the host restarts (systemd's
    file-hierarchy(7): /run is a tmpfs).
    """
    boot = view.machine.host.boot_id
    marks = re.findall(r"cat /proc/sys/kernel/random/uuid > (/run/[\w-]+);", command)
    failed = bool({"gpu_reset_fails", "gpu_process"} & set(view.machine.faults))
    for path in marks:
        view.volatile[path] = boot, f"{boot}-{view.now}\n{int(failed)}\n"
    if failed:
        return Output(1, "", "GPU 00000000:1B:00.0 is currently in use by another process.\n")
    view.machine.log_event(view.now, "gpu_reset", "gpus")
    cure_faults(view.machine, GPU_RESET)
    lines = [f"GPU {gpu.pci} was successfully reset.\n" for gpu in view.gpus]
    return Output(0, "".join(lines) + "All done.\n")
