"""What the host says about itself: the commands of docs/in-band.md, run and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.execution.methods_inband import problem
from provisioner.execution.work import Site
from provisioner.model.health import Evidence
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import PlaybookCall

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
TEXT_MAX = 4 * 1024 * 1024  # of one command's output; dmesg after a month is below 1 MB


async def run_commands(
    site: Site, node: Node, commands: Sequence[tuple[str, str, float]]
) -> Mapping[str, Evidence] | Blocker:
    """Run (name, command, limit in seconds) on a host; raw outputs by name.

    The outputs are evidence: they are judged elsewhere. A Blocker: the host was not reached.
    """
    limit_s = sum(timeout_s for _, _, timeout_s in commands) + 60.0
    listed = [{"name": n, "command": c, "timeout_s": t} for n, c, t in commands]
    result = await site.runner.run(
        PlaybookCall("run_commands", node.id, node.address, {"commands": listed}, limit_s)
    )
    if (failed := problem(node, "run_commands", result)) is not None:
        return failed
    found = result.facts.get("commands")
    answers: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    return {name: _evidence(command, answers.get(name)) for name, command, _ in commands}


def _evidence(command: str, answer: Any) -> Evidence:
    if not isinstance(answer, Mapping):
        return Evidence(source=command, exit_code=None, text="")
    rc = answer.get("rc")
    text = answer.get("stdout")
    text = text if isinstance(text, str) else ""
    error = answer.get("stderr")
    if not text and isinstance(error, str):
        text = error
    return Evidence(
        source=command,
        exit_code=rc if isinstance(rc, int) else None,
        text=text[:TEXT_MAX],
        truncated=len(text) > TEXT_MAX,
    )


async def boot_id(site: Site, node: Node) -> str | None:
    """The host's boot id, or None while its system does not answer."""
    found = await run_commands(site, node, [("boot_id", BOOT_ID, 20.0)])
    if isinstance(found, Blocker) or found["boot_id"].exit_code != 0:
        return None
    return found["boot_id"].text.strip() or None
