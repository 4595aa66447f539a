"""What the host says about itself: the commands of docs/in-band.md, run and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.execution.once import blocked
from provisioner.execution.work import Site
from provisioner.model.health import Evidence
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import PortError, ShellCommand, ShellOutput

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
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


async def boot_id(site: Site, node: Node) -> str | None:
    """The host's boot id, or None while its system does not answer."""
    found = await run_commands(site, node, [("boot_id", BOOT_ID, 20.0)])
    if isinstance(found, Blocker) or found["boot_id"].exit_code != 0:
        return None
    return found["boot_id"].text.strip() or None
