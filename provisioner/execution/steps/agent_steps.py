"""Commands to a node's maintenance agent, and the ledger rows of a stay with it.

An answer is hostile until `planning/disk_answers` has read it; a failed command is a blocker.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.agent.protocol import node_uuid
from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.power import Pace, switch_off, switch_on
from provisioner.execution.actions.work import Site
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.history import OPEN
from provisioner.ports import AgentAddress, PortError
from provisioner.settings.maintenance import BootWay

# ------------------------------------------------------------------------------
# The next boot source of a host, as its BMC offers it; and the identity of its agent.


async def offer(host: Redfish, url: str, way: BootWay = "vendor") -> Blocker | None:
    """Choose the image as the next boot source, by the site's way or else by the vendor's."""
    if way == "pxe":
        return await host.boot_override("Pxe")
    if way == "http_dhcp":
        return await host.boot_override("UefiHttp")
    if way == "http" or (way == "vendor" and host.quirk.http_boot):
        return await host.boot_override("UefiHttp", http_uri=url)
    if host.quirk.http_boot:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject="media",
            detail=f"the virtual drives of {host.quirk.title} serve the console only",
            unblock="Set `maintenance_boot: http`, `http_dhcp` or `pxe` for this site.",
        )
    if not await host.media_inserted(url):
        if (stuck := await host.eject_media()) is not None:
            return stuck
        if (refused := await host.insert_media(url)) is not None:
            return refused
    return await host.boot_virtual_cd()


async def boot_image(host: Redfish, pace: Pace, url: str, way: BootWay) -> Blocker | None:
    """Boot the maintenance image: choose it, then off and on.

    A host whose BMC refuses the image is not switched off for nothing.
    """
    refused = await host.admit_act() or await offer(host, url, way)
    refused = refused or await switch_off(host, pace)
    return refused or await switch_on(host, pace)


async def boot_disk(host: Redfish, pace: Pace) -> Blocker | None:
    """Boot from disk: off, eject the image, choose the disk, on.

    A host whose BMC is locked against changes of its boot source is not switched off for nothing.
    """
    if (refused := await host.find_obstacle("boot")) is not None:
        return refused
    if (stuck := await host.admit_act() or await switch_off(host, pace)) is not None:
        return stuck
    refused = await host.eject_media()
    refused = refused or await from_disk(host)
    return refused if refused is not None else await switch_on(host, pace)


async def from_disk(host: Redfish) -> Blocker | None:
    """Choose the disk, in full, for some services keep "Once" for ever.

    source: docs/sources/agent.md#sushy-tools.
    """
    refused = await host.boot_disk()
    # a service without that target has used its "Once" up, and boots the first entry: the disk
    return refused if refused is None or refused.reason is not Reason.NOT_OFFERED else None


async def list_addresses(node: Node, inventory: Inventory, host: Redfish) -> tuple[str, ...]:
    """Return every address that the node's agent may look itself up by, sorted."""
    macs = {d.mac for d in inventory.devices if d.mac}
    macs |= {b.base_mac for b in node.bmcs if b.base_mac}
    return tuple(sorted(macs | set(await host.host_macs())))


def identify_agent(agent: AgentAddress | None) -> str | None:
    """Return the value that distinguishes one boot's agent from another's."""
    return hashlib.sha256(agent.certificate.encode()).hexdigest() if agent is not None else None


def make_unavailable_blocker(node: Node, detail: str) -> Blocker:
    """Return why the maintenance image cannot be booted at all."""
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=f"{node.id}/maintenance",
        detail=detail,
        unblock="Pin images.maintenance in an overlay, and look that the node's cards are known.",
    )


def without_token(node: Node, image: str) -> Blocker:
    """Return why an image that cannot carry the token of its boot is not booted."""
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=f"{node.id}/maintenance",
        detail=f"{image} cannot carry its agent's token: the first machine to look up would get it",
        unblock="Build the image anew (`make image`) and let the daemon serve it, without "
        "--artifact-url; or accept the risk with `agent_lookup_trusts: first`.",
    )


CLEAN = "clean.execute_clean_step"
DEPLOY = "deploy.execute_deploy_step"
# ironic-python-agent 13.0.0, errors.py: HardwareManagerMethodNotFound
_NO_STEP = re.compile(r"could not find method|no hardwaremanager found", re.IGNORECASE)
_DIGEST = re.compile(r"checksum", re.IGNORECASE)  # errors.py: ImageChecksumError


async def ask_step(
    site: Site,
    node: Node,
    agent: AgentAddress,
    step: str,
    arguments: Mapping[str, Any],
    limit_s: float,
) -> object | Blocker:
    """Return the answer of one clean step of ours (docs/erasure.md)."""
    parameters = {
        "step": {"step": step, "interface": "deploy", "priority": 0, "args": dict(arguments)},
        "node": agent_node(node),
        "ports": [],
    }
    answer = await run_command(site, node, agent, CLEAN, parameters, limit_s)
    return answer.get("clean_result") if isinstance(answer, Mapping) else answer


async def run_command(
    site: Site,
    node: Node,
    agent: AgentAddress,
    name: str,
    parameters: Mapping[str, Any],
    limit_s: float,
) -> object | Blocker:
    """Return the result of one agent command. An agent of another node is never commanded."""
    subject = f"{node.id}/agent"
    if agent.node != node.id:
        return Blocker(
            reason=Reason.NOT_EXPECTED,
            subject=subject,
            detail=f"this is the agent of {agent.node}",
            unblock="Boot the maintenance image of this node.",
        )
    try:
        result = await site.agents.command(agent, name, parameters, limit_s)
    except PortError as error:
        return blocked(error, subject)
    if result.status == "SUCCEEDED":
        answer: object = result.result
        return answer
    return Blocker(
        reason=_reason(result.error),
        subject=subject,
        detail=f"{name} ended {result.status}: {result.error or 'without a word'}",
        unblock="Look at the agent's log and at the maintenance image, then retry the node.",
    )


def _reason(error: str) -> Reason:
    if _NO_STEP.search(error):
        return Reason.NOT_OFFERED
    return Reason.DIGEST_MISMATCH if _DIGEST.search(error) else Reason.UPDATE_FAILED


def agent_node(node: Node) -> dict[str, Any]:
    """Return the node as ironic-python-agent wants it with each step."""
    return {
        "uuid": node_uuid(node.id),
        "properties": {},
        "instance_info": {},
        "driver_internal_info": {},
    }


def find_last(rows: Sequence[LedgerEntry], action: str) -> LedgerEntry | None:
    """Return the newest row of an action."""
    mine = [r for r in rows if r.action == action]
    return max(mine, key=lambda r: r.intended_at, default=None)


def find_open(rows: Sequence[LedgerEntry], action: str) -> LedgerEntry | None:
    """Return the open row of an action, if a predecessor left one."""
    newest = find_last(rows, action)
    return newest if newest is not None and newest.status in OPEN else None


async def record_outcome(
    hold: Hold, action: str, before: Mapping[str, Any], status: ActionStatus, outcome: str
) -> None:
    """Write a verdict as a row of the ledger, also where a predecessor died between its writes."""
    row = find_open(await hold.list_entries(), action)
    if row is not None and row.before.get("visit") != before.get("visit"):
        await hold.settle_entry(row, ActionStatus.ABSENT, outcome="given up: a new stay began")
        row = None
    row = row or await hold.record_intent(action, before)
    await hold.settle_entry(row, status, outcome=outcome)
