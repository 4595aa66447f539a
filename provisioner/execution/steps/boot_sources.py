"""The next boot source of a host, as its BMC offers it; and the identity of its agent."""

from __future__ import annotations

import hashlib

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.power import Pace, switch_off, switch_on
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import AgentAddress
from provisioner.settings.maintenance import BootWay


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
    """Choose the disk, in full, for some services keep "Once" for ever (facts: image 3)."""
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
