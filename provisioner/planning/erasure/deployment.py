"""The disk that an image is written to, and the configuration of the new system's first boot. Pure.

A disk is identified by its serial, never by its place in a list; a disk that is ambiguous, or that
differs from the last reading, is not written to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.components.host_os import HOST_OS, NOTHING, STAMP
from provisioner.model.base import Record
from provisioner.model.erasure import Disk
from provisioner.model.inventory import Component, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Plan
from provisioner.planning.certification.rail_links import RailLink, write_netplan
from provisioner.planning.erasure.host_metadata import build_metadata
from provisioner.planning.path.pins import judge_pin
from provisioner.planning.path.planner import plan

MIB = 1024 * 1024
TABLE_BYTES = MIB  # both partition tables lie within this distance of an image's ends
WHOLE_BELOW_BYTES = 4 * MIB  # a smaller image has no partition table worth leaving out
SLOT = "host"


class ImageFile(Record):
    """A raw image that was verified: `checked` is the SHA-256 of the range that is read back."""

    name: str  # file name in the artifact store
    url: str  # the URL from which the agent fetches it
    size: int
    sha256: str
    checked: str


def read_range(size: int) -> tuple[int, int]:
    """Return offset and length of the range compared after writing: all but the partition tables.

    The agent moves a GPT's second table to the disk's end and adds the partition of the
    configuration drive (ironic-python-agent 13.0.0, partition_utils), so these bytes differ
    legitimately; every partition of the image lies between them.
    """
    if size < WHOLE_BELOW_BYTES:
        return 0, size
    return TABLE_BYTES, size - 2 * TABLE_BYTES


def system_first(
    inventory: Inventory,
    matrix: Matrix,
    release: str,
    profile: str,
    *,
    running: bool,
    history: History,
    production: bool,
) -> Plan | None:
    """Return the plan of a host whose system is written first; None: it runs the pinned one.

    Other in-band pins live in that system, and are read and planned when it is up. A host that runs
    no system of its own (`running` is false) and for which none is pinned is blocked.
    """
    profiles = matrix.releases[release].profiles if release in matrix.releases else {}
    pins = profiles[profile].pins if profile in profiles else {}
    installed = inventory.find_component(HOST_OS, SLOT)
    if HOST_OS not in pins:
        if running:
            return None
        blank = Plan(node=inventory.node, release=release, profile=profile)
        return blank.model_copy(update={"blockers": (_no_image(inventory.node, release),)})
    pin = pins[HOST_OS]
    if installed is not None and judge_pin(HOST_OS, installed.version, pin).met:
        return None
    if installed is None and running:
        return None  # it runs and its name was not readable: the planner reports that
    if installed is None:
        bare = Component(kind=HOST_OS, slot=SLOT, version=NOTHING, source="erased")
        inventory = inventory.model_copy(update={"components": (*inventory.components, bare)})
    only = profiles[profile].model_copy(update={"pins": {HOST_OS: pin}})
    alone = matrix.releases[release].model_copy(
        update={"profiles": {profile: only}, "requires": ()}
    )
    narrowed = matrix.model_copy(update={"releases": {release: alone}})
    return plan(inventory, narrowed, release, profile, history=history, production=production)


def _no_image(node: str, release: str) -> Blocker:
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=f"{node}/{HOST_OS}",
        detail=f"the host has no operating system, and {release} pins no {HOST_OS} to write",
        unblock=f"Pin {HOST_OS} in an overlay with an image and its digest, then retry the node.",
    )


def target_disk(node: Node, disks: Sequence[Disk], size: int) -> Disk | Blocker:
    """Return the disk for the system: the one a person named, or one chosen by rule.

    The rule: of the disks that the image fits on, the smallest; of equal ones, the first serial.
    HGX systems boot from the small M.2 disks, and their data disks are larger.
    """
    if "," in node.os_disk:
        return _disk(
            node,
            Reason.NOT_OFFERED,
            f"`os_disk` names more than one disk ({node.os_disk}), and md RAID1 is not written",
            "Name one disk; or use a hardware RAID1 of the two, which is one disk.",
        )
    fitting = [d for d in disks if d.size_bytes >= size]
    if node.os_disk:
        named_disk = node.os_disk.casefold()
        named = [d for d in disks if named_disk in (d.serial.casefold(), d.wwn.casefold())]
        if len(named) != 1:
            return _disk(
                node,
                Reason.NOT_EXPECTED,
                f"the disk {node.os_disk} is not among the node's: "
                f"{', '.join(d.serial for d in disks[:16]) or 'there is none'}",
                "Correct `os_disk` in the expected-hardware list, or put the disk back.",
            )
        if named[0] not in fitting:
            return _disk(
                node,
                Reason.PRECONDITION,
                f"the image of {size} bytes does not fit on {named[0].serial}",
                "Name a larger disk, or pin a smaller image.",
            )
        return named[0]
    if not fitting:
        detail = f"no disk holds {size} bytes; seen: {len(disks)}"
        return _disk(node, Reason.NOT_OFFERED, detail, "Look at the node's disks.")
    return min(fitting, key=lambda d: (d.size_bytes, d.serial))


def _disk(node: Node, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=f"{node.id}/disk", detail=detail, unblock=unblock)


def write_command(
    agent_node: Mapping[str, Any], disk: Disk, image: ImageFile, drive: str
) -> dict[str, Any]:
    """Return parameters of `deploy.execute_deploy_step` that write the image to exactly this disk.

    The hint is in the same command as the image: `standby.prepare_image` alone takes the disk from
    an earlier command, and an agent that restarted in between would guess one.
    """
    hint = {"serial": disk.serial}
    if disk.wwn:
        hint["wwn"] = disk.wwn
    info = {
        "id": image.sha256,
        "urls": [image.url],
        "os_hash_algo": "sha256",
        "os_hash_value": image.sha256,
        "disk_format": "raw",
        "image_type": "whole-disk",
        "stream_raw_images": True,
    }
    step = {
        "step": "write_image",
        "interface": "deploy",
        "priority": 0,
        "args": {"image_info": info, "configdrive": drive},
    }
    node = {**agent_node, "properties": {"root_device": hint}, "instance_info": {}}
    return {"step": step, "node": node, "ports": []}


def first_boot(
    node: Node,
    links: Sequence[RailLink],
    image: ImageFile,
    label: str,
    *,
    instance: str,
    user: str,
    authorized_key: str,
    host_key: tuple[str, str],
    other_macs: Sequence[str],
    metadata: bool = False,
) -> dict[str, str]:
    """Return the NoCloud files (cloud-init), by name. `host_key` is (private, public) of OpenSSH.

    The host's key is made by the daemon before the host has ever answered, so its first login is
    verified instead of trusted on first use. Each file is JSON, which is YAML too. `metadata`: the
    system serves its metadata itself.
    """
    meta = {"instance-id": f"{node.id}-{instance}", "local-hostname": node.id}
    served = build_metadata(meta) if metadata else {}
    config = {
        "users": [
            {
                "name": user,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "shell": "/bin/bash",
                "lock_passwd": True,
                "ssh_authorized_keys": [authorized_key],
            }
        ],
        "ssh_pwauth": False,
        "disable_root": True,
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key[0], "ed25519_public": host_key[1]},
        "write_files": [
            {"path": STAMP, "permissions": "0644", "content": render_stamp(label, image.sha256)},
            *served.get("write_files", ()),
        ],
        **({"runcmd": served["runcmd"]} if served else {}),
    }
    return {
        "meta-data": _json(meta),
        "user-data": "#cloud-config\n" + _json(config),
        "network-config": _json(plan_network(links, other_macs)),
    }


def render_stamp(label: str, sha256: str) -> str:
    """Return the contents of the stamp file, which names the image that this system was made
    from.
    """
    return f"IMAGE={label}\nSHA256={sha256}\n"


def plan_network(links: Sequence[RailLink], other_macs: Sequence[str]) -> dict[str, Any]:
    """Return the network configuration, version 2: rails as planned, other interfaces by DHCP."""
    cards = write_netplan(links)
    taken = {link.mac for link in links}
    for number, mac in enumerate(sorted(set(other_macs) - taken)):
        cards[f"other{number}"] = {"match": {"macaddress": mac}, "dhcp4": True, "optional": True}
    return {"version": 2, "ethernets": cards}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
