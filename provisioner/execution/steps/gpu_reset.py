"""Resets GPUs from their host: `nvidia-smi --gpu-reset` on every GPU of the node at once.

GPUs that are linked by NVLink must be reset in one command, with nothing running on them
(nvidia-smi manual, "--gpu-reset", without "-i"); the services that hold them open are stopped
first and started again, also when the reset failed.

The GPUs do not show that they were reset, so the command leaves a mark in the host: a new
identifier before it stops anything, and the exit code of the reset at its end. The mark lies in
/run, where a restart of the host removes it; a restart resets the GPUs as well. A daemon that finds
an open intent compares the mark and the boot id with those of before, and never resets blindly.
"""

from __future__ import annotations

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.inband import run_commands, until_quiet
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.ports import ShellCommand

METHOD = "gpu_reset"
# who holds GPUs goes first, and comes back last
SERVICES = "nvidia-dcgm nvidia-fabricmanager nvidia-persistenced"
STARTED = "nvidia-persistenced nvidia-fabricmanager nvidia-dcgm"
MARK = "/run/provisioner-gpu-reset"
LOCK_HELD = 75  # exit code: another tool works in the host, so nothing was begun
COMMAND = (
    f"exec 9>>/run/lock/provisioner-tools; flock -n 9 || exit {LOCK_HELD}; "
    f"cat /proc/sys/kernel/random/uuid > {MARK}; "
    f"for s in {SERVICES}; do systemctl stop $s 2>/dev/null; done; "
    "nvidia-smi --gpu-reset; r=$?; "
    f"for s in {STARTED}; do systemctl start $s 2>/dev/null; done; "
    f"echo $r >> {MARK}; exit $r"
)
LOOK = f"cat /proc/sys/kernel/random/boot_id {MARK} 2>/dev/null; echo looked"
LIMIT_S = 300.0  # eight GPUs take about a minute; a GPU that hangs must not hold us
LOOK_S = 20.0


def build_work(site: Site, node: Node, step: Step) -> Work:
    """Return the work of one reset of all GPUs of a node."""

    async def look() -> Snapshot | Blocker:
        busy = await until_quiet(site, node, LIMIT_S)
        return await _read_mark(site, node) if busy is None else busy

    async def send() -> Sent | Blocker:
        command = ShellCommand(METHOD, COMMAND, LIMIT_S)
        (output,) = await site.shell.run(node.id, node.address, [command])
        if output.exit_code == 0:
            return Sent()
        return _refused(node, output.exit_code, output.stdout or output.stderr)

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        """Check the exit code in the mark; the checks that follow measure the GPUs themselves."""
        mark = await _read_mark(site, node)
        if isinstance(mark, Blocker):
            return mark
        _, *codes = mark["mark"] or ["", "0"]  # no mark: the host was restarted since
        return None if codes == ["0"] else _refused(node, " ".join(codes) or None, "")

    return Work(
        act=Act(
            name=f"{METHOD} {node.id}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            happened=_happened,
            request_max_s=LIMIT_S + 30.0,
        ),
        finish=finish,
    )


async def _read_mark(site: Site, node: Node) -> Snapshot | Blocker:
    """Return the host's boot id and the lines of the mark, or why they cannot be read."""
    outputs = await run_commands(site, node, [("gpu_reset_mark", LOOK, LOOK_S)])
    if isinstance(outputs, Blocker):
        return outputs
    boot, *mark, last = outputs["gpu_reset_mark"].text.split() or ["", ""]
    if boot and last == "looked":
        return {"boot_id": boot, "mark": mark}
    return Blocker(
        reason=Reason.UNREACHABLE,
        subject=f"{node.id}/ssh",
        detail=f"its boot id cannot be read: {outputs['gpu_reset_mark'].text!r:.100}",
        unblock="It is tried again by itself; check that the host's system is up.",
    )


def _happened(before: Snapshot, now: Snapshot) -> bool | None:
    """Return whether the GPUs were reset since; None for a snapshot that has no mark to compare."""
    if "mark" not in before:  # written by a version that left no mark
        return None
    return bool(before["boot_id"] != now["boot_id"] or list(before["mark"]) != list(now["mark"]))


def _refused(node: Node, exit_code: object, text: str) -> Blocker:
    if exit_code == LOCK_HELD:
        return Blocker(
            reason=Reason.BUSY,
            subject=f"{node.id}/gpus",
            detail="another tool works in the host",
            unblock="It is tried again by itself when that has ended.",
        )
    ended = "did not end" if exit_code is None else f"ended with {exit_code}"
    return Blocker(
        reason=Reason.REFUSED,
        subject=f"{node.id}/gpus",
        detail=f"nvidia-smi --gpu-reset {ended}: {text!r:.200}",
        unblock="A cold boot resets them too; it is next on the ladder.",
    )
