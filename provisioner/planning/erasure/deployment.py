"""The disk that an image is written to, and the configuration of the new system's first boot. Pure.

A disk is identified by its serial, never by its place in a list; a disk that is ambiguous, or that
differs from the last reading, is not written to.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.components.kind import HOST_OS, NOTHING, STAMP
from provisioner.model.base import Record
from provisioner.model.erasure import Disk
from provisioner.model.inventory import Component, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Plan
from provisioner.planning.certification.host_settings import RailLink, write_netplan
from provisioner.planning.path.conditions import judge_pin
from provisioner.planning.path.planner import plan

# ------------------------------------------------------------------------------
# A small ISO 9660 volume with cloud-init's files; equal files result in equal bytes. Pure.
#
# The agent writes it to a partition, and cloud-init's NoCloud source finds it by its label
# "cidata". Names that ISO 9660 does not allow ("user-data") are Joliet's: a second tree of the same
# files. Equal bytes matter, because a repeated command must be recognisable as the same command.
# (ECMA-119 sections 8 and 9; Joliet Specification, Microsoft 1995.)


LABEL = "cidata"
SECTOR = 2048
SIZE_MAX_BYTES = 4 * 1024 * 1024  # the agent accepts 64 MiB; ours are some kilobytes
_TABLES = 4  # path tables: little and big endian, for each of two trees
_FIRST = 16 + 3 + _TABLES  # system area, three descriptors, path tables; then two directories
_WHEN = bytes(7)  # no date: two builds must not differ


def pack_volume(files: Mapping[str, str]) -> str:
    """Return the volume in the agent's format for a configuration drive: gzip, then base64."""
    return base64.b64encode(gzip.compress(build_volume(files), mtime=0)).decode()


def build_volume(files: Mapping[str, str]) -> bytes:
    """Return the bytes of the volume. `files`: contents by name, a few small ones."""
    names = sorted(files)
    contents = [files[name].encode() for name in names]
    assert sum(map(len, contents)) <= SIZE_MAX_BYTES
    assert len(names) <= 16, "one sector holds a directory"
    places = []
    at = _FIRST + 2
    for content in contents:
        places.append((at, len(content)))
        at += _sectors(len(content))
    plain = [_plain(name, number) for number, name in enumerate(names)]
    joliet = [name.encode("utf-16-be") for name in names]
    sectors: list[bytes] = [bytes(SECTOR)] * 16
    sectors.append(_descriptor(1, at, _FIRST, 19, joliet=False))
    sectors.append(_descriptor(2, at, _FIRST + 1, 21, joliet=True))
    sectors.append(b"\xffCD001\x01".ljust(SECTOR, b"\0"))
    for directory in (_FIRST, _FIRST + 1):
        sectors.append(struct.pack("<BBIH2s", 1, 0, directory, 1, b"\0\0").ljust(SECTOR, b"\0"))
        sectors.append(struct.pack(">BBIH2s", 1, 0, directory, 1, b"\0\0").ljust(SECTOR, b"\0"))
    sectors.append(_directory(_FIRST, plain, places))
    sectors.append(_directory(_FIRST + 1, joliet, places))
    for content in contents:
        size = _sectors(len(content)) * SECTOR
        sectors.append(content.ljust(size, b"\0"))
    return b"".join(sectors)


def _sectors(length: int) -> int:
    return max(1, -(-length // SECTOR))


def _plain(name: str, number: int) -> bytes:
    """Return a name that ECMA-119 allows, which sorts like the actual one."""
    letters = "".join(c if c.isalnum() else "_" for c in name.upper())[:6]
    return f"{number:02d}{letters}.;1".encode("ascii")


def _both(value: int) -> bytes:
    """Return a number in both byte orders (ECMA-119 7.3.3)."""
    return struct.pack("<I", value) + struct.pack(">I", value)


def _both_short(value: int) -> bytes:
    return struct.pack("<H", value) + struct.pack(">H", value)


def _record(name: bytes, place: int, size: int, *, directory: bool) -> bytes:
    """Return a directory record (ECMA-119 9.1)."""
    body = b"\0" + _both(place) + _both(size) + _WHEN
    body += bytes([2 if directory else 0, 0, 0]) + _both_short(1) + bytes([len(name)]) + name
    if len(name) % 2 == 0:
        body += b"\0"
    return bytes([len(body) + 1]) + body


def _directory(own: int, names: Sequence[bytes], places: Sequence[tuple[int, int]]) -> bytes:
    """Return the root: itself, its parent (itself), and the files in order of name."""
    records = [_record(name, own, SECTOR, directory=True) for name in (b"\0", b"\1")]
    records += [
        _record(name, place, size, directory=False)
        for name, (place, size) in zip(names, places, strict=True)
    ]
    directory = b"".join(records)
    assert len(directory) <= SECTOR
    return directory.ljust(SECTOR, b"\0")


def _descriptor(kind: int, sectors: int, root: int, tables: int, *, joliet: bool) -> bytes:
    """Return a volume descriptor (ECMA-119 8.4, 8.5); `tables` is the first of its path tables."""

    spelled = LABEL.encode("utf-16-be") if joliet else LABEL.encode("ascii")
    blank = b"\0 " if joliet else b" "

    def blanks(size: int) -> bytes:
        return (blank * size)[: size - size % len(blank)].ljust(size, b"\0")

    label = spelled + blanks(32 - len(spelled))
    escape = b"%/E".ljust(32, b"\0") if joliet else bytes(32)  # UCS-2, level 3
    descriptor = bytes([kind]) + b"CD001\x01\0" + blanks(32) + label
    descriptor += bytes(8) + _both(sectors) + escape + _both_short(1) + _both_short(1)
    descriptor += _both_short(SECTOR) + _both(10)
    descriptor += struct.pack("<II", tables, 0) + struct.pack(">II", tables + 1, 0)
    descriptor += _record(b"\0", root, SECTOR, directory=True)
    descriptor += blanks(128) * 4 + blanks(37) * 3
    descriptor += (b"0" * 16 + b"\0") * 4 + b"\1\0"
    return descriptor.ljust(SECTOR, b"\0")


# ------------------------------------------------------------------------------
# Metadata of a host at 169.254.169.254, served by its own system. Pure.
#
# A host in a tenant's network reaches no server of ours, and a server in each of them would be one
# more way in. So the configuration drive brings a small service: it answers at a link-local address
# of the loopback interface, with files that the same drive wrote. The paths are those that cloud
# images ask for (`latest/meta-data/`, EC2's); nothing in it is secret.


ROOT = "/var/lib/provisioner-metadata"
ADDRESS = "169.254.169.254"
UNIT = "provisioner-metadata.service"
_PROGRAM = "/usr/local/lib/provisioner-metadata.py"
_CODE = f'''\
"""Serves the files below {ROOT} as text; a folder is the list of its names."""
import http.server
import pathlib

ROOT = pathlib.Path("{ROOT}").resolve()


class Answer(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self):
        place = (ROOT / self.path.split("?")[0].lstrip("/")).resolve()
        if place != ROOT and ROOT not in place.parents or not place.exists():
            self.send_error(404)
            return
        if place.is_dir():
            names = sorted(p.name + "/" * p.is_dir() for p in place.iterdir())
            content = "\\n".join(names).encode()
        else:
            content = place.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


http.server.ThreadingHTTPServer(("{ADDRESS}", 80), Answer).serve_forever()
'''
_UNIT_TEXT = f"""\
[Unit]
Description=Metadata of this host at {ADDRESS}
After=network-pre.target

[Service]
ExecStartPre=+/bin/sh -c "ip address replace {ADDRESS}/32 dev lo"
ExecStart=/usr/bin/python3 {_PROGRAM}
Restart=on-failure
RestartSec=5
DynamicUser=yes
AmbientCapabilities=CAP_NET_BIND_SERVICE
ProtectSystem=strict
ProtectHome=yes

[Install]
WantedBy=multi-user.target
"""


def build_metadata(served: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a cloud-config that serve content by path below meta-data."""
    files = {f"{ROOT}/latest/meta-data/{path}": text for path, text in sorted(served.items())}
    files |= {_PROGRAM: _CODE, f"/etc/systemd/system/{UNIT}": _UNIT_TEXT}
    return {
        "write_files": [
            {"path": path, "permissions": "0644", "content": text} for path, text in files.items()
        ],
        "runcmd": [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", UNIT]],
    }


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
    bonded: Mapping[str, Any] = {},
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
        "network-config": _json(plan_network(links, other_macs, bonded)),
    }


def render_stamp(label: str, sha256: str) -> str:
    """The contents of the stamp file, which names the image that this system was made from."""
    return f"IMAGE={label}\nSHA256={sha256}\n"


def plan_network(
    links: Sequence[RailLink], other_macs: Sequence[str], bonded: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Return the network configuration, version 2: rails and bonds as planned, others by DHCP."""
    cards = write_netplan(links) | bonded.get("ethernets", {})
    taken = {card["match"]["macaddress"] for card in cards.values()}
    for number, mac in enumerate(sorted(set(other_macs) - taken)):
        cards[f"other{number}"] = {"match": {"macaddress": mac}, "dhcp4": True, "optional": True}
    return {"version": 2, **bonded, "ethernets": cards}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
