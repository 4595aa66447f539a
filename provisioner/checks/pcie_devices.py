"""Links of NICs, NVMe drives and PCIe switches run at their maximum, read from sysfs.

`pcie_link` judges GPUs. A link belongs to the device at its lower end. A bridge is judged where it
is the upper port of a switch, that is, a bridge with a bridge above and bridges below it; the lower
ports run at the speed of the device below them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.sysfs import match_files, parse_files
from provisioner.checks.readers.tool_output import END, read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_FILES = (
    "class",
    "vendor",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
)
# the links in /sys/bus/pci/devices lead to paths that show which bridge a device is below
PCI_TREE = Command(
    name="pci_tree",
    line="for f in " + " ".join(_FILES) + "; do grep -H . $(readlink -f /sys/bus/pci/devices/*"
    f" | sed s,$,/$f,) 2>/dev/null; done; {END}",
    limit_s=60.0,
)

_FILE = re.compile(
    r"(/sys/devices/\S{1,400}/[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])/("
    + "|".join(_FILES)
    + ")"
)
_SPEED = re.compile(r"^(\d{1,3}(?:\.\d{1,2})?) GT/s(?: PCIe)?$")  # "32.0 GT/s PCIe", "8 GT/s"
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_BRIDGE = "0x0604"
_NVME = "0x0108"
_NETWORK = ("0x0200", "0x0207")
_MELLANOX = "0x15b3"
# the link that a 400 Gb/s port needs
RAIL_GEN = 5
RAIL_WIDTH = 16


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    devices = _read_devices(read_output(evidence, PCI_TREE, any_exit=True))
    upper = _find_upper_ports(devices)
    full: set[str] = set()  # cards, however many functions they have
    drives = 0
    for path, facts in sorted(devices.items(), key=lambda item: _address(item[0])):
        kind = facts["class"][:6]
        nic = kind in _NETWORK and facts["vendor"] == _MELLANOX
        if not (nic or kind == _NVME or path in upper):
            continue
        link = _read_link(facts)
        if link is None and path in upper:
            detail = "the PCIe switch shows no link"
            yield fault(f"PCIe switch {_address(path)}", Severity.ISOLATE, detail)
        if link is None:
            continue  # a virtual function, which has no link
        gen, gen_max, width, width_max = link
        if nic and gen >= RAIL_GEN and width >= RAIL_WIDTH:
            full.add(_address(path)[:-2])
        drives += kind == _NVME
        if gen < gen_max or width < width_max:
            name = "NIC" if nic else "drive" if kind == _NVME else "PCIe switch"
            yield fault(
                f"{name} {_address(path)}",
                Severity.ISOLATE,
                "the PCIe link trained down",
                f"Gen{gen} x{width}",
                f"Gen{gen_max} x{width_max}",
            )
    if len(full) < context.rails:
        detail = f"NICs with a Gen{RAIL_GEN} x{RAIL_WIDTH} link"
        yield fault("host", Severity.ISOLATE, detail, len(full), context.rails)
    if drives < context.drives:
        yield fault("host", Severity.ISOLATE, "NVMe drives with a link", drives, context.drives)


def _read_devices(text: str) -> dict[str, dict[str, str]]:
    devices: dict[str, dict[str, str]] = {}
    for (path, name), value in match_files(parse_files(text), _FILE).items():
        devices.setdefault(path, {})[name] = value
    if not devices:
        raise Unreadable("sysfs: no PCI device in it")
    for path, facts in devices.items():
        if "class" not in facts or "vendor" not in facts:
            raise Unreadable(f"sysfs: {_address(path)} does not report its class and vendor")
    return devices


def _find_upper_ports(devices: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the bridges that have a bridge above and a bridge below them."""
    bridges = {path for path, facts in devices.items() if facts["class"].startswith(_BRIDGE)}
    below = {path.rpartition("/")[0] for path in bridges}
    return {path for path in bridges if path in below and path.rpartition("/")[0] in bridges}


def _address(path: str) -> str:
    return path.rpartition("/")[2].lower()


def _read_link(files: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """Return (generation, its maximum, width, its maximum); None for a function without a link.

    Virtual functions print "Unknown" and 0. So does a card that has fallen off the bus, which is
    then missing from the count of its kind.
    """
    cells = [files.get(name, "Unknown") for name in _FILES[2:]]
    if cells[0].startswith("Unknown") or cells[2].startswith("Unknown") or cells[1] == "0":
        return None
    speed, width, speed_max, width_max = cells
    return (
        _parse_generation(speed),
        _parse_generation(speed_max),
        _parse_lanes(width),
        _parse_lanes(width_max),
    )


def _parse_generation(cell: str) -> int:
    match = _SPEED.match(cell)
    generation = _GENERATIONS.get(float(match[1])) if match else None
    if generation is None:
        raise Unreadable(f"sysfs: a link speed of {cell[:40]!r}")
    return generation


def _parse_lanes(cell: str) -> int:
    if not (cell.isascii() and cell.isdecimal() and len(cell) <= 3 and 0 < int(cell) <= 32):
        raise Unreadable(f"sysfs: a link width of {cell[:40]!r}")
    return int(cell)


CHECK = Check("pcie_devices", Gate.A, (PCI_TREE,), _findings, after_load=True)
