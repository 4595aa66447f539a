"""Read a host's components from the raw output of its own commands: records and gaps.

Output of a host is untrusted: a value that does not fit is a gap, never a guess. Formats:
docs/in-band.md; `nvidia-smi --query-gpu`, `mlxfwmanager --query-format xml`, `mlxconfig -e -j`,
`dpkg-query -W`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping

from provisioner.checks import lldp
from provisioner.checks.check import Unreadable
from provisioner.checks.readers.nic_listing import read_cards
from provisioner.checks.readers.tool_output import END, END_WORDS
from provisioner.components.kind import HOST_OS, STAMP
from provisioner.model import host_packages
from provisioner.model.base import Record
from provisioner.model.cohort import Evidence
from provisioner.model.inventory import Activation, Component, Device, DeviceKind
from provisioner.model.machine.settings import NVME_FIRMWARE, join_version
from provisioner.model.matrix import Matrix
from provisioner.model.names import normalize_pci
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Gap, Reason
from provisioner.planning.intake import host_tools

# ------------------------------------------------------------------------------
# The firmware of a host's NVMe drives: the one that runs, and the one that the next reset brings.
#
# The kernel lists the drives (sysfs, /sys/class/nvme), so that one is seen where nvme-cli is
# missing.
# `nvme id-ctrl` has the revision that runs; the Firmware Slot Information log (`nvme fw-log`, log
# page 03h) has the revision in each slot, and in bits 6:4 of AFI the slot that the next reset
# activates, if the drive announces it. Output of a host is untrusted: what does not fit is a gap.


LOOK = "drive_firmware"
_LINE = (
    'for c in /sys/class/nvme/nvme*; do [ -e "$c/serial" ] || continue; n=${c##*/};'
    ' echo "drive $n"; for f in transport serial model firmware_rev;'
    ' do echo "$f $(cat $c/$f)"; done; nvme id-ctrl /dev/$n -o json; nvme fw-log /dev/$n -o json;'
    " done 2>/dev/null; "
)
COMMAND = (LOOK, _LINE + END, 120.0)
DRIVES_MAX = 256
_NAME = re.compile(r"drive (nvme\d{1,4})")
_FIELD = re.compile(r"(transport|serial|model|firmware_rev) (.{0,64})")
_SERIAL = re.compile(r"[!-.0-~]+( [!-.0-~]+)*")  # no "/", which separates kind and slot
_REVISION = re.compile(r"\d{1,20} \((.{1,8})\)")  # nvme-cli: the number, then its characters


def is_pinned_somewhere(matrix: Matrix) -> bool:
    """Return whether a profile pins firmware of drives; without one no host is asked."""
    profiles = (p for release in matrix.releases.values() for p in release.profiles.values())
    return any(NVME_FIRMWARE in profile.pins for profile in profiles)


def read_drives(evidence: Evidence) -> tuple[tuple[Component, ...], tuple[Gap, ...]]:
    """Return one component for each drive behind PCIe, and the gaps of what could not be read."""
    gaps: list[Gap] = []
    lines = evidence.text.splitlines()
    if END_WORDS not in lines[-1:] or evidence.truncated:
        return (), (_gap(evidence, "the list of drives was cut short"),)
    components: dict[str, Component] = {}
    for block in _split_blocks(lines):
        fields = {m[1]: m[2] for line in block if (m := _FIELD.fullmatch(line))}
        if fields.get("transport", "").strip() != "pcie":
            continue  # a volume of a storage system (NVMe over Fabrics) is no part of the host
        serial = " ".join(fields.get("serial", "").split())
        if not _SERIAL.fullmatch(serial) or serial in components:
            gaps.append(_gap(evidence, f"a drive without a serial number of its own: {serial!r}"))
            continue
        components[serial] = _read_drive(evidence, serial, fields, block, gaps)
    return tuple(components[serial] for serial in sorted(components)), tuple(gaps)


def _split_blocks(lines: Iterable[str]) -> list[list[str]]:
    blocks: list[list[str]] = []
    for line in lines:
        if _NAME.fullmatch(line) and len(blocks) < DRIVES_MAX:
            blocks.append([])
        elif blocks:
            blocks[-1].append(line)
    return blocks


def _read_drive(
    evidence: Evidence, serial: str, fields: Mapping[str, str], block: list[str], gaps: list[Gap]
) -> Component:
    identity, slots = _read_documents("\n".join(block))
    model = fields.get("model", "")
    # the kernel's copy stays old after an activation without a reset (Linux before 6.7)
    running = _get_text(identity, "fr") or fields.get("firmware_rev", "")
    version = join_version(model, running)
    if version is None:
        detail = (
            f"drive {serial} shows no model and firmware: {model.strip()!r} {running.strip()!r}"
        )
        gaps.append(_gap(evidence, detail, Reason.VERSION_MISSING))
    following = _find_next_revision(slots)
    staged = join_version(model, following) if following is not None else None
    waits = staged is not None and staged != version
    return Component(
        kind=NVME_FIRMWARE,
        slot=serial,
        version=version,
        staged=staged if waits else None,
        pending=Activation.COLD_BOOT if waits else None,
        updateable=True,
        serial=serial,
        source=evidence.source[:200],
    )


def _read_documents(text: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the JSON of `id-ctrl` and of the one drive in `fw-log`; {} for one that is missing."""
    identity: Mapping[str, object] = {}
    slots: Mapping[str, object] = {}
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            document, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        inner = next(iter(document.values()), None) if len(document) == 1 else None
        if isinstance(inner, dict):
            slots = inner
        elif "fr" in document:
            identity = document
        at = text.find("{", end)
    return identity, slots


def _get_text(document: Mapping[str, object], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _find_next_revision(slots: Mapping[str, object]) -> str | None:
    active = slots.get("Active Firmware Slot (afi)")
    if not isinstance(active, int) or not (following := active >> 4 & 0x7):
        return None
    match = _REVISION.fullmatch(_get_text(slots, f"Firmware Rev Slot {following}"))
    return match[1] if match else None


def _gap(evidence: Evidence, detail: str, reason: Reason = Reason.MALFORMED) -> Gap:
    return Gap(reason=reason, source=evidence.source[:200], detail=detail[:200])


COMMANDS: tuple[tuple[str, str, float], ...] = (
    ("boot_id", "cat /proc/sys/kernel/random/boot_id", 20.0),
    (
        "gpus",
        (
            "nvidia-smi --query-gpu=index,uuid,serial,name,pci.bus_id,vbios_version,driver_version "
            "--format=csv,noheader"
        ),
        120.0,
    ),
    ("packages", host_packages.QUERY, 60.0),
    ("system", f"cat {STAMP} /etc/os-release", 20.0),
    # util-linux lsblk(8): whole drives only, without their partitions
    ("drives", "lsblk --json --nodeps --output NAME,TYPE,SERIAL,TRAN,RM", 30.0),
    ("nics", "mlxfwmanager --query-format xml", 300.0),
    ("nic_config", "mlxconfig -e -j /dev/stdout q", 300.0),
)

_BUILD = re.compile(r"-\d+(ubuntu[\w.~]*)?$")  # a package's own revision: "535.129.03-1"


class InbandFacts(Record):
    """Components and devices that only the host itself can report."""

    boot_id: str | None
    components: tuple[Component, ...]
    devices: tuple[Device, ...]
    gaps: tuple[Gap, ...]
    drives: tuple[str, ...] = ()  # serials of the drives of the host, sorted


def read(
    outputs: Mapping[str, Evidence],
    cards: tuple[BmcRef, ...],
    profiles: Mapping[str, Mapping[str, str]],
) -> InbandFacts:
    """Read the output of every command in `COMMANDS`; `cards` gives the slots of the BlueFields."""
    gaps: list[Gap] = []
    boot = outputs["boot_id"].text.strip() if outputs["boot_id"].exit_code == 0 else ""
    if not re.fullmatch(r"[0-9a-f-]{36}", boot):
        gaps.append(_gap_inband_facts(outputs["boot_id"], "no boot id"))
        boot = ""
    components = [*_gpu_driver(outputs["gpus"], gaps), *_packages(outputs["packages"], gaps)]
    if "system" in outputs:
        components += _system(outputs["system"])
    devices, firmware = _nics(outputs["nics"], cards, gaps)
    components += firmware
    components += _nic_config(outputs["nic_config"], cards, profiles, gaps)
    return InbandFacts(
        boot_id=boot or None,
        components=tuple(components),
        devices=tuple(devices),
        gaps=tuple(gaps),
        drives=_drives(outputs["drives"], gaps) if "drives" in outputs else (),
    )


def _drives(evidence: Evidence, gaps: list[Gap]) -> tuple[str, ...]:
    """Return the serials of the drives in the host, as `lsblk` lists them.

    USB devices are left out, because BMCs present their virtual media as USB devices with own
    serials.
    """
    try:
        listed = json.loads(evidence.text)["blockdevices"]
        shown = [d for d in listed[:DRIVES_MAX] if d["type"] == "disk" and d["tran"] != "usb"]
        serials = {d["serial"].strip() for d in shown if d["serial"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        gaps.append(_gap_inband_facts(evidence, "not the list of drives of lsblk"))
        return ()
    return tuple(sorted(s for s in serials if re.fullmatch(r"[!-~]([ -~]{0,62}[!-~])?", s)))


def _gap_inband_facts(evidence: Evidence, detail: str, reason: Reason = Reason.MALFORMED) -> Gap:
    return Gap(reason=reason, source=evidence.source, detail=detail)


def _system(evidence: Evidence) -> Iterable[Component]:
    """Return `host.os`: the image named by the stamp, else the system of os-release, else nothing.

    The component is needed only if it is pinned, so its absence is no gap: the planner reports it.
    """
    fields = dict(
        line.partition("=")[::2] for line in evidence.text.splitlines()[:100] if "=" in line
    )
    image = fields.get("IMAGE", "").strip()
    if not image:
        image = " ".join(fields.get(k, "").strip(" \"'") for k in ("ID", "VERSION_ID")).strip()
    if not re.fullmatch(r"[!-~]+( [!-~]+)*", image) or len(image) > 100:
        return ()
    return (_component(HOST_OS, "host", image, evidence, updateable=True),)


def _gpu_driver(evidence: Evidence, gaps: list[Gap]) -> Iterable[Component]:
    """Return one `host.driver` if all GPUs report the same version."""
    try:
        rows = [[c.strip() for c in row] for row in csv.reader(evidence.text.splitlines()) if row]
    except csv.Error as error:  # a field without end
        gaps.append(_gap_inband_facts(evidence, f"not the table of nvidia-smi: {error}"))
        return ()
    drivers = {row[6] for row in rows if len(row) == 7 and re.fullmatch(r"[\d.]+", row[6])}
    if evidence.exit_code != 0 or len(drivers) != 1:
        gaps.append(_gap_inband_facts(evidence, f"driver versions seen: {sorted(drivers)!s:.200}"))
        return ()
    return (_component("host.driver", "host", drivers.pop(), evidence),)


def _component(
    kind: str, slot: str, version: str | None, evidence: Evidence, **more: object
) -> Component:
    return Component.model_validate(
        {"kind": kind, "slot": slot, "version": version, "source": evidence.source, **more}
    )


def _packages(evidence: Evidence, gaps: list[Gap]) -> Iterable[Component]:
    versions_of: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for line in evidence.text.splitlines():
        parts = line.split()
        if len(parts) < 3 or not host_packages.is_installed(parts[2]):
            continue  # not installed; no such package
        names[parts[0]] = parts[1]
        if (component := host_packages.classify_package(parts[0], parts[1])) is not None:
            kind, version = component
            version = _BUILD.sub("", version) if kind == "host.fabric_manager" else version
            versions_of.setdefault(kind, set()).add(version)
    if packaging := host_packages.name_driver_packages(names):
        versions_of[host_packages.DRIVER_PACKAGES] = {packaging}
    for kind, version in host_packages.read_stack(names, evidence.text).items():
        versions_of[kind] = {version}
    if host_packages.is_mixed_stack(names):
        detail = "doca-host and the DOCA profile are of two releases"
        gaps.append(_gap_inband_facts(evidence, detail, Reason.DUPLICATE))
    missing = [kind for kind in host_packages.NEEDED if kind not in versions_of]
    gaps += [
        _gap_inband_facts(evidence, f"{k} is not installed", Reason.VERSION_MISSING)
        for k in missing
    ]
    gaps += [  # the list of packages does not show which version runs
        _gap_inband_facts(
            evidence, f"{kind} is installed as {sorted(versions)!s:.200}", Reason.DUPLICATE
        )
        for kind, versions in versions_of.items()
        if len(versions) > 1
    ]
    return [
        _component(kind, "host", min(versions) if len(versions) == 1 else None, evidence)
        for kind, versions in sorted(versions_of.items())
    ]


def _nics(
    evidence: Evidence, cards: tuple[BmcRef, ...], gaps: list[Gap]
) -> tuple[list[Device], list[Component]]:
    try:
        listed = read_cards(evidence.text)
    except Unreadable as error:
        gaps.append(_gap_inband_facts(evidence, str(error)))
        return [], []
    devices: list[Device] = []
    components: list[Component] = []
    for nic in listed:
        card = _card(cards, nic.mac, nic.pci)
        slot = card.name if card else nic.pci
        if not slot or any(d.slot == slot for d in devices):
            reason = Reason.DUPLICATE if slot else Reason.MALFORMED
            gaps.append(
                _gap_inband_facts(evidence, f"a second or nameless device {slot!r:.60}", reason)
            )
            continue
        if nic.version is None:
            gaps.append(
                _gap_inband_facts(evidence, f"{slot}: no firmware version", Reason.VERSION_MISSING)
            )
        kind = _nic_kind(nic.type, card)
        devices.append(
            Device(
                kind=DeviceKind.DPU if kind == "bluefield.nic" else DeviceKind.NIC,
                slot=slot,
                part=nic.part or None,
                mac=nic.mac or None,
                pci=nic.pci or None,
                source=evidence.source,
            )
        )
        waits = nic.running is not None and nic.running != nic.burned
        components.append(
            _component(
                kind,
                slot,
                nic.version,
                evidence,
                staged=nic.burned if waits else None,
                pending=Activation.COLD_BOOT if waits else None,
                updateable=True,
            )
        )
    return devices, components


def _card(cards: tuple[BmcRef, ...], mac: str, pci: str) -> BmcRef | None:
    by_mac = [c for c in cards if c.base_mac and c.base_mac == mac]
    by_pci = [c for c in cards if c.pci and c.pci == pci]
    return next(iter(by_mac or by_pci), None)


def _nic_kind(device_type: str, card: BmcRef | None) -> str:
    if "BlueField" in device_type:
        return "bluefield.nic" if card is not None and card.kind == "dpu" else "supernic.nic"
    kinds = {"ConnectX7": "nic.cx7", "ConnectX8": "nic.cx8"}
    return next((k for name, k in kinds.items() if device_type.startswith(name)), "nic.other")


def _nic_config(
    evidence: Evidence,
    cards: tuple[BmcRef, ...],
    profiles: Mapping[str, Mapping[str, str]],
    gaps: list[Gap],
) -> Iterable[Component]:
    """Return `nic.config` of each SuperNIC: the profile whose parameters are all current.

    "none" is a version too: no profile of the matrix is in force.
    """
    try:
        document = json.loads(evidence.text[max(evidence.text.find("{"), 0) :])
        devices = [d for d in document.values() if isinstance(d, dict)]
    except (ValueError, AttributeError, RecursionError) as error:
        gaps.append(_gap_inband_facts(evidence, f"not the JSON of mlxconfig: {error}"))
        return []
    components: list[Component] = []
    supernics = {normalize_pci(c.pci): c for c in cards if c.kind == "supernic" and c.pci}
    for device in devices:
        pci = normalize_pci(str(device.get("device", "")))
        table = device.get("tlv_configuration")
        if pci not in supernics or not isinstance(table, dict):
            continue
        card = supernics.pop(pci)  # of two entries for one card the first counts
        current = _profile(table, profiles, "current")
        following = _profile(table, profiles, "next")
        components.append(
            _component(
                "nic.config",
                card.name,
                current,
                evidence,
                staged=following if following != current else None,
                pending=Activation.COLD_BOOT if following != current else None,
            )
        )
    gaps.extend(
        _gap_inband_facts(evidence, f"{card.name}: no configuration", Reason.VERSION_MISSING)
        for card in supernics.values()
    )
    return components


def _profile(
    table: Mapping[str, object], profiles: Mapping[str, Mapping[str, str]], when: str
) -> str:
    values = {
        name: _value(entry.get(f"{when}_value"))
        for name, entry in table.items()
        if isinstance(entry, dict)
    }
    fitting = [
        name
        for name, parameters in profiles.items()
        if parameters and all(values.get(k) == _value(v) for k, v in parameters.items())
    ]
    # if two profiles fit, the one with more parameters is the one that was written
    return max(fitting, key=lambda name: (len(profiles[name]), name), default="none")


def _value(raw: object) -> str:
    """Return a value in one form: mlxconfig writes the same value as "True(1)", 1 or "1"."""
    match = re.fullmatch(r".*\((-?\w+)\)", str(raw))
    return match.group(1) if match else str(raw)


# ------------------------------------------------------------------------------
# The closed list of commands that only read: a daemon that observes runs no other. Pure.
#
# Commands of hosts are compared as whole lines with those that the readers declare. Commands of
# switches carry names of VRFs, VNIs and ports, and are compared with patterns that leave no room
# for a quote, a substitution or a second command.


_LINES = frozenset(
    (
        *(line for _, line, _ in COMMANDS),
        host_tools.HOST_TOOLS_LOOK,
        COMMAND[1],
        *(command.line for command in lldp.CHECK.commands),
    )
)
_WORD = r"[A-Za-z0-9][A-Za-z0-9._:/-]*"
# of SONiC's own tools and of FRR's shell; `show` commands of vtysh change nothing
_SWITCH = tuple(
    re.compile(pattern)
    for pattern in (
        r"show system-health summary",
        r"ip -j neigh show",
        r"show mac",
        r"ip -j -d addr show",
        rf"vtysh -c 'show {_WORD}(?: {_WORD}){{0,8}} json'",
        r"docker exec lldp lldpctl -f json",
        r"TSC no-stats",
        r"decode-syseeprom -s",
        rf"sonic-db-cli COUNTERS_DB HGETALL {_WORD}",
        r"sonic-db-cli STATE_DB HGETALL 'TRANSCEIVER_[A-Z_]{1,32}\|Ethernet[0-9]{1,4}'",
        r"sonic-cfggen -d --print-data",
        r"cat /etc/sonic/config_db\.json",
        r"sonic-installer list",
        (
            r"for k in \$\(sonic-db-cli STATE_DB KEYS 'ACL_\*_TABLE\|[A-Za-z0-9_-]+\*'\); do "
            r'echo "\$k \$\(sonic-db-cli STATE_DB HGET "\$k" status\)"; done; echo read'
        ),
    )
)


def is_reading_command(line: str) -> bool:
    return (
        line in _LINES
        or host_tools.is_look(line)
        or any(pattern.fullmatch(line) for pattern in _SWITCH)
    )
