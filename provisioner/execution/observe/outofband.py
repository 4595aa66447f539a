"""Commands of checks that a host's BMC answers: read whole, and kept as they came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.measurements import collect_measurements
from provisioner.checks import attested_firmware
from provisioner.checks.check import Command
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import TEXT_MAX
from provisioner.model.health import Evidence
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import PortError

HOST = "host"  # the BMC's name in every node


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
        outputs[command.name] = Evidence(
            source=command.line,
            exit_code=0,
            text=text[:TEXT_MAX],
            truncated=len(text) > TEXT_MAX,
        )
    return outputs


async def _answer(site: Site, client: Redfish, command: Command) -> dict[str, Any]:
    """The resources that a command names, or the signed measurements that it asks for."""
    if command.line.startswith(attested_firmware.SOURCE):
        patterns = command.line.removeprefix(attested_firmware.SOURCE).split()
        clock = site.clock
        return await collect_measurements(client.service, patterns, clock.sleep, clock.now())
    reading = await client.read_resources(command.line)
    gaps = [[g.source, g.reason.value, g.detail] for g in reading.gaps]
    return {"resources": dict(reading.resources), "gaps": gaps}
