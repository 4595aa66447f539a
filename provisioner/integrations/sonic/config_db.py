"""CONFIG_DB, the kernel's links and the images of a SONiC switch, and patches of CONFIG_DB.

Rules: names of VRFs begin with "Vrf" on SONiC, so the fabric's VRF RED is VrfRED there; and the
kernel decides where a port is, because CONFIG_DB is an intention. Sources: sonic-net, the documents
"Generic Config Update and Rollback", "VRF support", and sonic-utilities' Command-Reference.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.integrations.sonic import acl_rows
from provisioner.model.outcome import Reason
from provisioner.model.switch import DEFAULT_VRF, Images, Move, Platform, PortChange
from provisioner.ports.switch import SwitchRefused
from provisioner.ports.wire import UNREADABLE

PREFIX = "Vrf"
OWN = (DEFAULT_VRF, "mgmt")  # VRFs that have the same name everywhere
TABLES_MAX = 1000  # of CONFIG_DB; a leaf has some 60
DESCRIPTION_MAX = 255  # sonic-port.yang
LINKS_MAX = 20_000  # of the kernel

CONFIGURATION = "sonic-cfggen -d --print-data"
STARTUP = "cat /etc/sonic/config_db.json"
LINKS = "ip -j -d addr show"
IMAGES = "sonic-installer list"
SAVE = "config save -y"

_IMAGE_LINE = re.compile(r"(Current|Next): *(\S+)")
PORTS_MAX = 1024
_PLACES = ("PORT", "INTERFACE", "VRF")
ALIAS_MAX = 128  # sonic-port.yang: length of alias
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")

Tree = dict[str, Any]


@dataclass(frozen=True)
class PortRow:
    """One port of a CONFIG_DB. `vrf` is the fabric's name."""

    vrf: str
    addresses: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class Configuration:
    """The part of a CONFIG_DB that this adapter reads. `tables`: all of it, for patches."""

    vrfs: frozenset[str]
    ports: Mapping[str, PortRow]
    tables: Mapping[str, Tree]


@dataclass(frozen=True)
class KernelPort:
    """One port as the kernel has it. `vrf` is the fabric's name."""

    vrf: str
    addresses: tuple[str, ...]
    up: bool
    mtu: int | None


@dataclass(frozen=True)
class Kernel:
    """The kernel's VRFs and ports; a port without a link is left out."""

    vrfs: frozenset[str]
    ports: Mapping[str, KernelPort]


def sonic_vrf(name: str) -> str:
    """Return SONiC's name of a VRF."""
    return name if name in OWN or name.startswith(PREFIX) else PREFIX + name


def own_vrf(name: str) -> str:
    """Return the fabric's name of a VRF of SONiC's."""
    return name.removeprefix(PREFIX) or name


def apply_patch(steps: list[Tree]) -> str:
    """Return the command that applies a patch whole or not at all."""
    text = shlex.quote(json.dumps(steps))
    return (
        f'f=$(mktemp) && printf %s {text} >"$f" && config apply-patch "$f"; '
        'r=$?; rm -f "$f"; exit $r'
    )


def name_patch(steps: list[Tree]) -> str:
    """Return the name by which a patch is recorded."""
    return "patch-" + hashlib.sha256(json.dumps(steps).encode()).hexdigest()[:8]


def read_configuration(config: Any) -> Configuration | None:
    """Return VRFs and ports of a CONFIG_DB; None if it is none."""
    if not isinstance(config, dict) or len(config) > TABLES_MAX:
        return None
    if not all(isinstance(rows, dict) for rows in config.values()):
        return None
    if any(UNREADABLE in key for table in _PLACES for key in config.get(table, {})):
        return None  # a row of a port that is not known is not a port without that row
    vrfs = dict.fromkeys(config.get("PORT", {}), DEFAULT_VRF)
    addresses: dict[str, list[str]] = {port: [] for port in vrfs}
    for key, row in config.get("INTERFACE", {}).items():
        port, _, address = key.partition("|")
        if port not in vrfs:
            continue
        name = row.get("vrf_name") if isinstance(row, dict) else 0
        if not isinstance(name, str | None):
            return None  # a row that says nothing readable is no port in no VRF
        if address:
            addresses[port].append(address)
        elif name:
            vrfs[port] = own_vrf(name)
            if UNREADABLE in vrfs[port]:
                return None
    ports = {
        port: PortRow(vrf, tuple(addresses[port]), _describe(config["PORT"][port]))
        for port, vrf in vrfs.items()
    }
    names = frozenset({DEFAULT_VRF, *(own_vrf(name) for name in config.get("VRF", {}))})
    return Configuration(names, ports, config)


def list_unsaved_ports(applied: Configuration, startup: Configuration) -> frozenset[str]:
    """Return the ports whose configurations differ; "" for VRFs or filters that differ."""
    names = {*applied.ports} | {*startup.ports}
    ports = {n for n in names if applied.ports.get(n) != startup.ports.get(n)}
    rest = [(c.vrfs, acl_rows.pick_tables(c.tables)) for c in (applied, startup)]
    return frozenset(ports if rest[0] == rest[1] else {*ports, ""})


def read_kernel(links: Any, applied: Configuration) -> Kernel | None:
    """Return VRFs and ports of the kernel; None if the output is unreadable."""
    if not isinstance(links, list) or len(links) > LINKS_MAX:
        return None
    ports: dict[str, KernelPort] = {}
    vrfs = {DEFAULT_VRF}
    for link in links:
        if not isinstance(link, dict) or not isinstance(link.get("ifname"), str):
            return None
        name = link["ifname"]
        info = link.get("linkinfo")
        mtu = link.get("mtu")
        if isinstance(info, dict) and info.get("info_kind") == "vrf":
            vrfs.add(own_vrf(name))
        if UNREADABLE in str(link.get("master")) or UNREADABLE in name:
            return None
        if not isinstance(link.get("master"), str | None):
            return None
        if name in applied.ports:
            ports[name] = KernelPort(
                vrf=own_vrf(str(link.get("master") or DEFAULT_VRF)),
                addresses=_list_addresses(link.get("addr_info", [])),
                up=link.get("operstate") == "UP",
                mtu=mtu if isinstance(mtu, int) and not isinstance(mtu, bool) else None,
            )
    return Kernel(frozenset(vrfs), ports)


def read_platform(config: Any, serial: str) -> Platform | None:
    """Return the SKU from CONFIG_DB and the serial from the EEPROM; None if unreadable."""
    metadata = config.get("DEVICE_METADATA") if isinstance(config, dict) else None
    local = metadata.get("localhost") if isinstance(metadata, dict) else None
    if not isinstance(local, dict) or not _NAME.fullmatch(serial.strip()):
        return None
    names = _read_aliases(config.get("PORT"))
    return Platform(model=str(local.get("hwsku", ""))[:60], serial=serial.strip(), port_names=names)


def read_hostname(configuration: Configuration) -> str:
    """Return the switch's own name by its CONFIG_DB; "" if it has none there."""
    metadata = configuration.tables.get("DEVICE_METADATA")
    local = metadata.get("localhost") if isinstance(metadata, dict) else None
    name = local.get("hostname") if isinstance(local, dict) else None
    return name if isinstance(name, str) else ""


def _read_aliases(rows: Any) -> dict[str, str]:
    """Return what LLDP calls each port -> the port: its alias, or its name where it has none.

    As lldpmgrd does it (sonic-net/sonic-buildimage, dockers/docker-lldp/lldpmgrd). An alias that
    two ports have names neither.
    """
    ports: dict[str, list[str]] = {}
    for name, row in list(rows.items())[:PORTS_MAX] if isinstance(rows, dict) else ():
        alias = row.get("alias") if isinstance(row, dict) else None
        called = alias if isinstance(alias, str) and 0 < len(alias) <= ALIAS_MAX else name
        ports.setdefault(called, []).append(name)
    return {called: held[0] for called, held in ports.items() if len(held) == 1}


def read_images(text: str) -> Images | None:
    """Return the images of `sonic-installer list`; None if it is unreadable."""
    named = {kind.lower(): name for kind, name in _IMAGE_LINE.findall(text)}
    listed = [line for line in text.partition("Available:")[2].split() if line]
    if named.get("current") not in listed or named.get("next") not in listed:
        return None
    return Images(
        running=named["current"], next=named["next"], versions=tuple(dict.fromkeys(listed))
    )


def find_other_image(images: Images) -> str:
    """Return the image that a reboot is to bring: the next one, or the one beside the running
    one; "" if there is none.
    """
    if images.next != images.running:
        return images.next
    return next((v for v in images.versions if v != images.running), "")


def list_vrf_changes(applied: Configuration, change: PortChange) -> tuple[str, ...]:
    """Return the ports that leave a VRF: their rows of INTERFACE are removed first.

    source: sonic-swss cfgmgr/intfmgr.cpp, doIntfGeneralTask: an interface of STATE_DB "can not
    change ... directly, skipping"; sonic-utilities config/main.py, vrf bind: addresses and row are
    removed, then STATE_DB is awaited, because "the DEL will lost" otherwise; and
    generic_config_updater/patch_sorter.py, CreateOnlyFilter: it has no rule for INTERFACE.
    """
    rows = applied.tables.get("INTERFACE", {})
    leaving = [
        m.interface
        for m in change.moves
        if m.vrf and m.interface in rows and applied.ports[m.interface].vrf != own_vrf(m.vrf)
    ]
    return tuple(sorted(leaving))


def plan_removal(applied: Configuration, ports: Collection[str]) -> list[Tree]:
    """Return the steps that remove the rows of ports, each address before its interface.

    source: sonic-utilities generic_config_updater/generic_updater.py: a patch that leaves an empty
    table is refused, so the last rows go with their table.
    """
    rows = applied.tables.get("INTERFACE", {})
    gone = [key for key in rows if key.partition("|")[0] in ports]
    if len(gone) == len(rows):
        return [{"op": "remove", "path": "/INTERFACE"}] if gone else []
    ordered = sorted(gone, key=lambda key: ("|" not in key, key))
    return [{"op": "remove", "path": f"/INTERFACE/{acl_rows.escape(key)}"} for key in ordered]


def without_rows(applied: Configuration, ports: Collection[str]) -> Configuration:
    """Return the configuration without the rows of INTERFACE of these ports."""
    rows = applied.tables.get("INTERFACE", {})
    left = {key: row for key, row in rows.items() if key.partition("|")[0] not in ports}
    return replace(applied, tables={**applied.tables, "INTERFACE": left})


def find_held_ports(ports: Collection[str]) -> str:
    """Return the command that lists which of these ports intfmgrd still has in STATE_DB."""
    names = " ".join(shlex.quote(port) for port in sorted(ports))
    keys = 'sonic-db-cli STATE_DB KEYS "INTERFACE_TABLE|$p"'
    return f"for p in {names}; do {keys}; done; echo read"


def plan_patch(applied: Configuration, change: PortChange) -> list[Tree]:
    """Return the steps that move ports, make VRFs and bind filters as a change asks.

    Raises `SwitchRefused` for a move that SONiC does not get here.
    """
    return plan_rows(applied, change, applied) + acl_rows.plan_steps(applied.tables, change)


def plan_rows(applied: Configuration, change: PortChange, before: Configuration) -> list[Tree]:
    """Return the steps that move ports and make VRFs; addresses of `before` are kept.

    Raises `SwitchRefused` for a move that SONiC does not get here.
    """
    moves = [move for move in change.moves if move.vrf]
    for move in change.moves:
        _check_move(applied, move)
    names = {sonic_vrf(move.vrf) for move in moves} - set(OWN)
    steps = _list_missing(applied.tables, "VRF", {name: {} for name in sorted(names)})
    rows = before.tables.get("INTERFACE", {})
    entries: Tree = {}
    described: list[Tree] = []
    for move in moves:
        port = move.interface
        vrf = sonic_vrf(move.vrf)
        entries[port] = {} if vrf == DEFAULT_VRF else {"vrf_name": vrf}
        kept = [key for key in rows if key.startswith(f"{port}|")]
        added = [f"{port}|{move.address}"] if move.address else []
        entries |= {key: {} for key in (*kept, *added)}
        described += _list_descriptions(port, applied.ports[port].description, move.description)
    return steps + _list_missing(applied.tables, "INTERFACE", entries) + described


def _why_no_port(name: str, rows: Any) -> str:
    """Say what is wrong with a port that CONFIG_DB does not have under this name."""
    own = _read_aliases(rows).get(name)
    known = f": the switch calls {own} so; write {own} in the plan" if own else ""
    return f"there is no port {name[:20]}{known}"


def _check_move(applied: Configuration, move: Move) -> None:
    problem = ""
    if move.interface not in applied.ports:
        problem = _why_no_port(move.interface, applied.tables.get("PORT"))
    elif move.denied:
        problem = "filters that deny all are not written on SONiC: the move is the fence"
    elif move.vrf and not _NAME.fullmatch(sonic_vrf(move.vrf)):
        problem = f"{move.vrf[:40]!r} is no name of a VRF"
    if problem:
        raise SwitchRefused(Reason.SWITCH_REFUSED, problem)


def _describe(row: Any) -> str:
    text = row.get("description", "") if isinstance(row, dict) else "?"
    return text if isinstance(text, str) else "?"


def _list_addresses(listed: Any) -> tuple[str, ...]:
    entries = listed if isinstance(listed, list) else []
    return tuple(
        f"{e['local']}/{e['prefixlen']}"
        for e in entries
        if isinstance(e, dict) and "local" in e and "prefixlen" in e and e.get("scope") != "link"
    )


def _list_descriptions(port: str, held: str, text: str) -> list[Tree]:
    """Return the step that writes the field `description` of a row of PORT, if it is needed."""
    if not 0 < len(text) <= DESCRIPTION_MAX or text == held:
        return []
    return [{"op": "add", "path": f"/PORT/{acl_rows.escape(port)}/description", "value": text}]


def _list_missing(tables: Mapping[str, Tree], table: str, rows: Tree) -> list[Tree]:
    have = tables.get(table)
    if not rows:
        return []
    if not have:
        return [{"op": "add", "path": f"/{table}", "value": rows}]
    return [
        {"op": "add", "path": f"/{table}/{acl_rows.escape(key)}", "value": row}
        for key, row in rows.items()
        if have.get(key) != row
    ]
