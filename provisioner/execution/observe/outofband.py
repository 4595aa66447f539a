"""Commands of checks that a host's BMC answers: read whole, and kept as they came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.measurements import collect_measurements
from provisioner.adapters.redfish.parsing import at, link, objects
from provisioner.adapters.redfish.parsing import text as text_of
from provisioner.checks import attested_firmware
from provisioner.checks.check import Command
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import TEXT_MAX
from provisioner.execution.observe.reference_files import attach_answers
from provisioner.model.health import Evidence
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import Clock, PortError

HOST = "host"  # the BMC's name in every node
MEMBERS_MAX = 8  # systems or managers of one BMC; a DGX H100 has two of each


async def ask_bmc(
    site: Site, node: Node, commands: Sequence[Command]
) -> dict[str, Evidence] | Blocker:
    """Return outputs by name; a Blocker if the BMC does not answer at all."""
    outputs: dict[str, Evidence] = {}
    for command in commands:
        try:
            client = await site.reach.redfish(node, HOST)
            if isinstance(client, Blocker):
                return client
            text = json.dumps(await _answer(site, client, command))
        except PortError as error:
            return blocked(error, f"{node.id}/{HOST}")
        evidence = _limit_text(command.line, text)
        if command.line.startswith(attested_firmware.SOURCE):
            evidence = attach_answers(evidence, site.settings.attestation_references)
        outputs[command.name] = evidence
    return outputs


async def ask_roots(client: Redfish, patterns: Sequence[str], clock: Clock) -> Evidence:
    """Return the signed measurements of the roots of trust whose names match, as a check would.

    Raises `PortError` if the BMC does not answer.
    """
    line = attested_firmware.SOURCE + " ".join(sorted(patterns))
    return _limit_text(line, json.dumps(await _measure(client, patterns, clock)))


async def read_resets(client: Redfish) -> dict[str, str]:
    """Return `LastResetTime` of the systems and managers that a BMC shows, by path."""
    walk = client.service.walk()
    root = await walk.read_root()
    shown = {}
    for collection in ("Systems", "Managers"):
        for member in (await walk.read_linked(root, collection))[:MEMBERS_MAX]:
            if at := text_of(member.data.get("LastResetTime")):
                shown[member.path] = at
    return shown


async def shows_tpm(client: Redfish) -> bool:
    """Return whether a system of this BMC lists an enabled TPM 2.0 among its `TrustedModules`."""
    walk = client.service.walk()
    systems = (await walk.read_linked(await walk.read_root(), "Systems"))[:MEMBERS_MAX]
    return any(
        module.get("InterfaceType") == "TPM2_0" and at(module, "Status", "State") == "Enabled"
        for system in systems
        for module in objects(system.data.get("TrustedModules"))
    )


async def read_secure_boot(client: Redfish) -> bool | None:
    """Return `SecureBootCurrentBoot` of the host; None if no system, or several, state it."""
    walk = client.service.walk()
    systems = (await walk.read_linked(await walk.read_root(), "Systems"))[:MEMBERS_MAX]
    paths = [path for system in systems if (path := link(system.data, "SecureBoot")) is not None]
    bodies = [(await walk.read(path)).data for path in paths]
    states = {"Enabled": True, "Disabled": False}
    shown = [states.get(str(body.get("SecureBootCurrentBoot"))) for body in bodies]
    stated = [state for state in shown if state is not None]
    return stated[0] if len(stated) == 1 else None


async def _measure(client: Redfish, patterns: Sequence[str], clock: Clock) -> dict[str, Any]:
    return await collect_measurements(client.service, patterns, clock.sleep, clock.now())


def _limit_text(source: str, text: str) -> Evidence:
    return Evidence(
        source=source, exit_code=0, text=text[:TEXT_MAX], truncated=len(text) > TEXT_MAX
    )


async def _answer(site: Site, client: Redfish, command: Command) -> dict[str, Any]:
    """The resources that a command names, or the signed measurements that it asks for."""
    if command.line.startswith(attested_firmware.SOURCE):
        patterns = command.line.removeprefix(attested_firmware.SOURCE).split()
        return await _measure(client, patterns, site.clock)
    reading = await client.read_resources(command.line)
    gaps = [[g.source, g.reason.value, g.detail] for g in reading.gaps]
    return {"resources": dict(reading.resources), "gaps": gaps}
