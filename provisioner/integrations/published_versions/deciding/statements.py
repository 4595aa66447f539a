"""The versions that an imported file states, in one form for all file formats.

A file is hostile until it is read: names and versions are short printable ASCII, their number is
bounded, and words that stand for "no version" are no version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from provisioner import components
from provisioner.components.kind import UNCLASSIFIED, Item
from provisioner.model.input_error import InputError

# ------------------------------------------------------------------------------
# Component kinds by the names that makers' documents use for them.
#
# Only names whose meaning a source gives are here; any other stays unclassified until a person maps
# it. NIC names are checked against the version: NVIDIA's table for GB300 writes "CX7" beside
# 40.47.1026, which is ConnectX-8 firmware (docs.nvidia.com/dgx/dgxgb200-fw-update-guide).


# source: github.com/NVIDIA/fwpkg_unpack, README, set names of HGX-H100x8_0002_230517.3.0
HGX_PARTS = {
    "erot": "hgx.erot",
    "hmc": "hgx.bmc",
    "fpga": "hgx.fpga",
    "gpu": "hgx.gpu",
    "nvswitch": "hgx.nvswitch",
    "pcieswitch": "hgx.pcieswitch",
    "pcieretimer": "hgx.retimer",
}
# source: docs.nvidia.com/dgx/dgxgb200-fw-update-guide, tables of the compute tray; "SBIOS" and
# "SMR" are left out: it is not stated which item of the inventory they are
_DOCUMENT_NAMES = {
    "hmc": "hgx.bmc",
    "hmc erot": "hgx.erot",
    "hmc cpld": "hgx.cpld",
    "gpu": "hgx.gpu",
    "bmc": "host.bmc",
    "bmc erot": "host.erot",
    # source: docs.nvidia.com/doca/archive/2-9-3/General+Support
    "bluefield-3 nic firmware": "bluefield.nic",
    "bluefield-3": "bluefield.nic",
    "bf3": "bluefield.nic",
    "bluefield-3 erot (glacier)": "bluefield.erot",
    "bmc firmware": "bluefield.bmc",
    "atf": "bluefield.atf",
    "uefi": "bluefield.uefi",
    "bsp": "bluefield.bsp",
    "connectx-7": "nic.cx7",
    "cx7": "nic.cx7",
    "connectx-8": "nic.cx8",
    "cx8": "nic.cx8",
    # source: docs.nvidia.com/dgx/dgxgb300nvl72-release-notes/package-contents.html
    "gpu driver": "host.driver",
    "fabric manager": "host.fabric_manager",
    "nvidia bluefield-3 firmware": "bluefield.nic",
    "cumulus linux os": "switch.os",
    "cumulus linux": "switch.os",
    # source: github.com/netrisai/docs, ai-netris-host-networking.rst
    "bluefield fw bundle (bfb)": "bluefield.bundle",
    "bluefield firmware bundle (bfb)": "bluefield.bundle",
    "bluefield-3 firmware": "bluefield.nic",
    "bluefield3 supernic firmware": "supernic.nic",
    "connectx7 supernic firmware": "nic.cx7",
    "connectx8 supernic firmware": "nic.cx8",
    "doca host": "host.doca",
    "spectrum-x congestion control algorithm (spc-x cc)": "host.spcx_cc",
    "nccl": "host.nccl",
    "doca_host": "host.doca",
    "bf3_bfb": "bluefield.bundle",
    # source: github.com/Mellanox/nic-configuration-operator, GetFWVersionsFromBFB
    "bf3_nic_fw": "bluefield.nic",
}
# firmware trains of NICs: hardware facts of DOCA's General Support pages
_NIC_TRAINS = {"28": "nic.cx7", "40": "nic.cx8", "32": "bluefield.nic"}
_NIC_KINDS = frozenset({"nic.cx7", "nic.cx8", "bluefield.nic", "supernic.nic"})
# PCI ids: docs/sources/hardware.md#slots; a BlueField-3 is bluefield.nic or supernic.nic
PCI_DEVICES = {0x1021: "nic.cx7", 0x1023: "nic.cx8"}


def find_kind(name: str, version: str, maps: Mapping[str, str]) -> str:
    """Return the component kind of a name, "" if none is certain. `maps` are a person's choices."""
    if name in maps:
        return maps[name]
    if name in components.ALL:
        return name
    kind = _DOCUMENT_NAMES.get(name.lower(), "")
    if not kind:
        classified, _, _ = components.classify(Item(id=name, version=version), "")
        kind = "" if classified == UNCLASSIFIED else classified
    return check_train(kind, version)


def check_train(kind: str, version: str) -> str:
    """Return the kind of NIC that a firmware train is for, whatever the name of the row says."""
    train = re.match(r"(\d\d)\.\d", version)
    if kind in _NIC_KINDS and train:
        actual = _NIC_TRAINS.get(train[1], "")
        return kind if actual == "bluefield.nic" and kind == "supernic.nic" else actual
    return kind


STATEMENTS_MAX = 5_000  # of one file; a release states some hundred, Dell's whole catalogue 4,000
TEXT_CHARS_MAX = 200  # of a name, a version or a file name
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_NO_VERSION = frozenset({"", "-", "--", "n/a", "na", "none", "null", "~", "unknown", "tbd"})
_SHA256 = re.compile(r"[0-9a-f]{64}")
# "9.7E+05": a spreadsheet has taken a version for a number, and the digits are lost
_SCIENTIFIC = re.compile(r"\d+(\.\d+)?[eE][+-]\d+")


class Statement(NamedTuple):
    """One version of one component, as a file states it."""

    name: str  # of the component, in the file's words
    version: str
    kind: str = ""  # component kind; "" if no rule recognises the name
    file: str = ""  # the file that brings the version
    sha256: str = ""  # of that file
    evidence: str = ""
    profile: str = ""  # the only profile that it is for; "" if the file does not say
    row: str = ""  # of a published table, as it was read


class Contents(NamedTuple):
    """A package with a version of its own, and the versions of its parts."""

    kind: str
    version: str
    parts: tuple[Statement, ...]


class Import(NamedTuple):
    """Everything that one file states; `notes` are the parts of it that are not used."""

    source: str
    format: str
    statements: tuple[Statement, ...]
    contents: tuple[Contents, ...] = ()
    notes: tuple[str, ...] = ()


def clean_text(source: str, where: str, value: object) -> str:
    """Return a name or a version. Raises InputError for anything but short printable ASCII."""
    text = value.strip() if isinstance(value, str) else ""
    if not isinstance(value, str) or len(text) > TEXT_CHARS_MAX:
        raise InputError(
            source, where, "this is no short text", "Take the maker's file, unchanged."
        )
    if text and not _PRINTABLE.fullmatch(text):
        raise InputError(source, where, "it has unprintable characters", "Is the file damaged?")
    return text


def clean_version(source: str, where: str, value: object) -> str:
    """Return a version, or "" where the file says that there is none. Raises InputError."""
    text = clean_text(source, where, value)
    if _SCIENTIFIC.fullmatch(text):
        raise InputError(
            source,
            where,
            f"a spreadsheet has changed a version into the number {text}",
            "Format the column as text and export it again.",
        )
    return "" if text.lower() in _NO_VERSION else text


def clean_sha256(source: str, where: str, value: object) -> str:
    """Return a SHA-256 in lower case, or "" for an empty text. Raises InputError for others."""
    text = clean_text(source, where, value).lower()
    if text and not _SHA256.fullmatch(text):
        raise InputError(source, where, "this is no SHA-256", "It has 64 hexadecimal digits.")
    return text


def clean_file(source: str, where: str, value: object) -> str:
    """Return the last part of a path or URL, without its query. Raises InputError."""
    name = re.split(r"[/\\]", clean_text(source, where, value).partition("?")[0])[-1]
    return "" if name in {".", ".."} else name


def check_count(source: str, statements: Sequence[Statement]) -> None:
    """Raise InputError for a file that states more than any release has."""
    if len(statements) > STATEMENTS_MAX:
        problem = f"it states more than {STATEMENTS_MAX} versions"
        raise InputError(source, "", problem, "Filter it, e.g. with --system.")
