"""Settings of a host that its baseline names: how each is read, and how a boot sets it again.

Most of them are lost at every boot, so they are one shell script that a unit of systemd runs at
each boot; the module writes the script, runs it, and reads every value back by other means.
"""

from __future__ import annotations

import os
import re

from ansible_collections.provisioner.fleet.plugins.module_utils import tools

RELAXED = 0x0010  # PCIe Device Control, Enable Relaxed Ordering
PRIORITIES = range(8)
HUGEPAGES = "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
# answers of `systemctl is-enabled` for a unit that starts at boot, itself or as another's part
_STARTS = ("enabled", "static", "alias", "indirect", "generated")
_LINUX = re.compile(r"\s*linux(16|efi)?\s+\S")  # as 10_linux of GRUB writes it
BOOT_ARGUMENTS = "kernel_arguments"
SERVICE = "service:"
PACKAGE = "package:"
ELSEWHERE = ("rails",)  # another module sets it
_CARD = ("roce_trust", "roce_pfc", "roce_ecn", "roce_cma_tos", "relaxed_ordering")
NAMES = (*_CARD, "acs", "hugepages_2m", BOOT_ARGUMENTS, "fabric_manager")
_TRUST = re.compile(r"^Priority trust state:\s*(\w+)\s*$", re.MULTILINE)
_PFC = re.compile(r"^\s*enabled((?:\s+[01]){8})\s*$", re.MULTILINE)
_HEX = re.compile(r"[0-9a-fA-F]{4}")


class Card:
    """One card: its PCI address, network interfaces and RDMA devices."""

    def __init__(self, address, sysfs):
        self.address = address
        self.sysfs = sysfs
        folder = os.path.join(sysfs, "bus/pci/devices", os.path.basename(address))
        self.interfaces = _list_folder(os.path.join(folder, "net"))
        self.rdma = _list_folder(os.path.join(folder, "infiniband"))
        if not self.interfaces or not self.rdma:
            raise tools.Refused(f"{address} has no network interface or no RDMA device")

    def ecn_files(self, interface, priorities=PRIORITIES):
        """Return the files of both ends, for these priorities."""
        place = os.path.join(self.sysfs, "class/net", interface, "ecn")
        return [f"{place}/{end}/enable/{p}" for end in ("roce_np", "roce_rp") for p in priorities]

    def tos_file(self, device):
        """Return the file of rdma_cm's traffic class."""
        return os.path.join(self.sysfs, "kernel/config/rdma_cm", device, "ports/1/default_roce_tos")


def _list_folder(path):
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def read_file(path):
    """Read a small file; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def require_names(settings):
    """Refuse a setting that this module does not have."""
    for name in settings:
        if name not in NAMES and name not in ELSEWHERE and not name.startswith((SERVICE, PACKAGE)):
            raise tools.Refused(f"there is no setting {name}")


def list_bridges():
    """List the PCIe bridges that have Access Control Services, with their control register."""
    listed = tools.read(["lspci", "-Dn", "-d", "::0604"])
    addresses = [line.split()[0] for line in listed.splitlines() if line.strip()]
    return {a: value for a in addresses if (value := _read_register(a, "ECAP_ACS+6.w"))}


def _read_register(address, register):
    text = tools.read(["setpci", "-s", address, register], exits=(0, 1)).strip()
    if _HEX.fullmatch(text):
        return text
    if "not found" not in text:  # pciutils, setpci.c: "Capability ... not found"
        shown = tools.replace_control_characters(text)[:80] or "nothing"
        raise tools.Unreadable(f"setpci -s {address} {register} printed {shown}")
    return ""


def write_script(settings, cards, bridges):
    """Return the lines that a boot runs; each is right to repeat."""
    lines = []
    for card in cards:
        lines += _list_card_lines(settings, card)
    if settings.get("acs") == "off":
        lines += [f"setpci -s {bridge} ECAP_ACS+6.w=0000" for bridge in sorted(bridges)]
    if "hugepages_2m" in settings:
        lines.append(f"echo {settings['hugepages_2m']} >{cards_sysfs(cards)}/{HUGEPAGES}")
    return lines


def cards_sysfs(cards):
    """Return where sysfs is mounted."""
    return cards[0].sysfs if cards else "/sys"


def _list_card_lines(settings, card):
    lines = []
    for interface in card.interfaces:
        if "roce_trust" in settings:
            lines.append(f"mlnx_qos -i {interface} --trust={settings['roce_trust']}")
        if "roce_pfc" in settings:
            lines.append(f"mlnx_qos -i {interface} --pfc={','.join(settings['roce_pfc'])}")
        if "roce_ecn" in settings:
            for priority in PRIORITIES:
                on = int(str(priority) in settings["roce_ecn"])
                files = card.ecn_files(interface, [priority])
                lines += [f"echo {on} >{file}" for file in files]
    if "roce_cma_tos" in settings:
        for device in card.rdma:
            file = card.tos_file(device)
            folder = file.partition("/ports/")[0]
            lines.append(f"mkdir -p {folder} && echo {settings['roce_cma_tos']} >{file}")
    if "relaxed_ordering" in settings:
        bit = f"{RELAXED if settings['relaxed_ordering'] == 'on' else 0:04x}"
        lines.append(f"setpci -s {card.address} CAP_EXP+8.w={bit}:{RELAXED:04x}")
    return lines


def read_settings(settings, cards):
    """Read the value of each setting that this module reads; "" where none was read.

    A value that the cards do not share is all of them, joined.
    """
    values = {}
    for name in settings:
        if name in _CARD:
            values[name] = "|".join(sorted({_read_card(name, card) for card in cards}))
        elif name == "acs":
            is_clear = all(int(value, 16) == 0 for value in list_bridges().values())
            values[name] = "off" if is_clear else "on"
        elif name == "hugepages_2m":
            values[name] = read_file(os.path.join(cards_sysfs(cards), HUGEPAGES))
        elif name == "fabric_manager":
            wanted = "on" if has_nvswitches() else "off"
            is_right = read_unit("nvidia-fabricmanager") == wanted
            values[name] = "nvswitch" if is_right else "wrong"
        elif name.startswith(SERVICE):
            values[name] = read_unit(name[len(SERVICE) :])
    return values


def _read_card(name, card):
    if name == "relaxed_ordering":
        text = _read_register(card.address, "CAP_EXP+8.w")
        return ("on" if int(text, 16) & RELAXED else "off") if text else ""
    if name == "roce_cma_tos":
        return "|".join(sorted({read_file(card.tos_file(device)) for device in card.rdma}))
    if name == "roce_ecn":
        return "|".join(sorted({_read_ecn(card, interface) for interface in card.interfaces}))
    pattern = _TRUST if name == "roce_trust" else _PFC
    values = set()
    for interface in card.interfaces:
        match = pattern.search(tools.read(["mlnx_qos", "-i", interface]))
        values.add("".join(match[1].split()) if match else "")
    return "|".join(sorted(values))


def _read_ecn(card, interface):
    """Return the priorities that both ends have on; "" where an end is not read or differs."""
    states = [read_file(file) for file in card.ecn_files(interface)]
    points, reactions = states[: len(PRIORITIES)], states[len(PRIORITIES) :]
    if points != reactions or not set(states) <= {"0", "1"}:
        return ""
    return "".join(str(p) for p in PRIORITIES if points[p] == "1")


def is_enabled(unit):
    """Return whether systemd starts a unit at the next boot.

    Exit codes of systemctl(1): 1 is a unit that is not enabled, 4 one that is not there.
    """
    said = tools.read(["systemctl", "is-enabled", unit], exits=(0, 1, 4)).strip()
    return said.rpartition("\n")[2] in _STARTS


def read_unit(unit):
    """Return "on" for a unit that runs now and from the next boot on, "off" for neither."""
    said = tools.read(["systemctl", "is-active", unit], exits=(0, 3, 4)).strip()
    states = {said == "active", is_enabled(unit)}
    return "half" if len(states) > 1 else "on" if states == {True} else "off"


def read_boot_arguments(menu):
    """Return the words that every kernel of a grub.cfg is started with."""
    lines = [set(line.split()[2:]) for line in menu.splitlines() if _LINUX.match(line)]
    return set.intersection(*lines) if lines else set()


def has_nvswitches():
    """Return whether the GPUs are on NVSwitches; a GPU on none has no fabric state."""
    words = ["nvidia-smi", "--query-gpu=fabric.state", "--format=csv,noheader"]
    states = tools.read(words).split("\n")
    return bool(states[0].strip()) and "N/A" not in states[0]
