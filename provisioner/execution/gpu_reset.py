"""Resets GPUs from their host: `nvidia-smi --gpu-reset` on every GPU of the node at once.

GPUs that are linked by NVLink must be reset in one command, with nothing running on them
(nvidia-smi manual, "--gpu-reset", without "-i"); the services that hold them open are stopped
first and started again, also when the reset failed. Repeating it is harmless.
"""

from __future__ import annotations

from provisioner.execution.inband import boot_id, run_commands
from provisioner.execution.once import Act, Sent, Snapshot
from provisioner.execution.work import Site, Work
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step

METHOD = "gpu_reset"
# who holds GPUs goes first, and comes back last
SERVICES = "nvidia-dcgm nvidia-fabricmanager nvidia-persistenced"
STARTED = "nvidia-persistenced nvidia-fabricmanager nvidia-dcgm"
COMMAND = (
    f"for s in {SERVICES}; do systemctl stop $s 2>/dev/null; done; "
    "nvidia-smi --gpu-reset; r=$?; "
    f"for s in {STARTED}; do systemctl start $s 2>/dev/null; done; exit $r"
)
LIMIT_S = 300.0  # eight GPUs take about a minute; a GPU that hangs must not hold us


def work(site: Site, node: Node, step: Step) -> Work:
    """The work of one reset of all GPUs of a node."""

    async def look() -> Snapshot | Blocker:
        return {"boot_id": await boot_id(site, node)}

    async def send() -> Sent | Blocker:
        found = await run_commands(site, node, [("gpu_reset", COMMAND, LIMIT_S)])
        if isinstance(found, Blocker):
            return found
        told = found["gpu_reset"]
        if told.exit_code == 0:
            return Sent()
        return Blocker(
            reason=Reason.REFUSED,
            subject=f"{node.id}/gpus",
            detail=f"nvidia-smi --gpu-reset ended with {told.exit_code}: {told.text!r:.200}",
            unblock="A cold boot resets them too; it is next on the ladder.",
        )

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None  # what it brought is measured by the checks that follow

    return Work(
        act=Act(
            name=f"{METHOD} {node.id}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            happened=lambda _before, _now: False,  # nothing shows it; once more does no harm
            request_max_s=LIMIT_S + 30.0,
        ),
        finish=finish,
    )
