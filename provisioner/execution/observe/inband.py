"""The host's own report: the commands of docs/in-band.md, run and parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.model.health import Evidence
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError, ShellCommand, ShellOutput, Unreachable

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
REBOOT = "shutdown -r now"
# A tool that changes the host holds this lock, and all processes that a play starts in a host carry
# the play's mark in their environment. Both outlive the connection and the caller of the play.
PROBE = (
    "l=/run/lock/provisioner-tools; [ ! -e $l ] || flock -n -E 75 $l true || echo $l is held; "
    "grep -lsz '^PROVISIONER_RUN=.' /proc/[0-9]*/environ; echo looked"
)
TEXT_MAX = 4 * 1024 * 1024  # of one command's output; dmesg after a month is below 1 MB


async def run_commands(
    site: Site, node: Node, commands: Sequence[tuple[str, str, float]]
) -> Mapping[str, Evidence] | Blocker:
    """Run (name, command, limit in seconds) on a host, as root; raw outputs by name.

    The outputs are evidence: they are judged elsewhere. A Blocker: the host was not reached.
    """
    listed = [ShellCommand(*command) for command in commands]
    try:
        outputs = await site.shell.run(node.id, node.address, listed)
    except PortError as error:
        return blocked(error, f"{node.id}/ssh")
    return {c.name: _evidence(c.line, o) for c, o in zip(listed, outputs, strict=True)}


def _evidence(command: str, output: ShellOutput) -> Evidence:
    text = output.stdout or output.stderr
    return Evidence(
        source=command,
        exit_code=output.exit_code,
        text=text[:TEXT_MAX],
        truncated=output.truncated or len(text) > TEXT_MAX,
    )


async def until_quiet(site: Site, node: Node, limit_s: float) -> Blocker | None:
    """Wait until no process that a play started runs in the host any more.

    A Blocker: one still runs, or it cannot be determined; then nothing may be repeated there.
    """
    until = site.clock.now() + limit_s
    while True:
        outputs = await run_commands(site, node, [("probe", PROBE, 30.0)])
        if isinstance(outputs, Blocker):
            return outputs
        *busy, last = outputs["probe"].text.split("\n")[:-1] or [""]
        if outputs["probe"].exit_code == 0 and last == "looked" and not busy:
            return None
        if site.clock.now() >= until:
            return Blocker(
                reason=Reason.UPDATE_STALLED,
                subject=f"{node.id}/host",
                detail=f"a play may still be at work there: {' '.join((*busy, last))!r:.200}",
                unblock="Look at these processes in the host; when they are gone, it goes on.",
            )
        await site.clock.sleep(site.settings.poll_s)


async def restart_system(site: Site, node: Node) -> Blocker | None:
    """Ask the host's system to restart; whether it did is seen by its boot id."""
    try:
        outputs = await site.shell.run(
            node.id, node.address, [ShellCommand("reboot", REBOOT, 60.0)]
        )
    except Unreachable as error:
        return None if error.maybe_executed else blocked(error, f"{node.id}/ssh")
    except PortError as error:
        return blocked(error, f"{node.id}/ssh")
    if outputs[0].exit_code in (0, None):  # None: the connection went before the answer
        return None
    return Blocker(
        reason=Reason.REFUSED,
        subject=f"{node.id}/host",
        detail=f"shutdown ended with {outputs[0].exit_code}: {outputs[0].stderr!r:.200}",
        unblock="Look at the host's log, then retry the node.",
    )


async def boot_id(site: Site, node: Node) -> str | None:
    """Return the host's boot id, or None while its system does not answer."""
    outputs = await run_commands(site, node, [("boot_id", BOOT_ID, 20.0)])
    if isinstance(outputs, Blocker) or outputs["boot_id"].exit_code != 0:
        return None
    return outputs["boot_id"].text.strip() or None
