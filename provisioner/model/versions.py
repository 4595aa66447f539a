"""Compare versions, each by its component's grammar; what cannot be told is None, never a guess.

A version is read into a key of comparable parts, so that order is total among those of one grammar.
The grammars are those that devices print (facts: hardware 4.7, redfish V7). `opaque` knows equality
only: it never says "newer".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Key = tuple[Any, ...]  # of one shape within a grammar: integers, text, or tuples of integers

VERSION_CHARS_MAX = 128  # the longest seen is 52 ("bf-bundle-..."); a BMC may send anything
_NUMBER_DIGITS_MAX = 18  # build dates have 12; bounds the cost of int() on hostile input

_DOTTED = re.compile(r"[vV]?(\d+(?:\.\d+)*)")
_HEX = re.compile(r"([0-9A-Fa-f]+(?:\.[0-9A-Fa-f]+)*)")
_EROT = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.(\d+))?(?:_n(\d+))?")
_BF_BMC = re.compile(r"(?:BF-)?(\d+)\.(\d+)(?:-(?:(LTSU)?(\d+)))?(?:\.\d+)*")
_BFB = re.compile(r"(?:bf-(?:fw)?bundle-)?(\d+)\.(\d+)\.(\d+)-(\d+)(?:_(\d+)\.(\d+)(?:[_-].*)?)?")
# a BlueField as delivered (NVIDIA BlueField BMC manual: "DOCA_2.5.0_BSP_4.5.0_Ubuntu_22.04-1...")
_DOCA_BFB = re.compile(r"DOCA_v?(\d+)\.(\d+)\.(\d+)_BSP_[\w.+-]+", re.IGNORECASE)
_HGX_BMC = re.compile(r"(?:[A-Za-z0-9]+-)(\d+)\.(\d+)-(\d+)(?:-rc(\d+))?")
_DOCA = re.compile(r"(\d+(?:\.\d+)*)(?:-(\d+(?:\.\d+)*)(?:[-+~].*)?)?")
_CUMULUS = re.compile(r"(?:Cumulus Linux )?(\d+)\.(\d+)\.(\d+)(?:\.(\d+))?")
# host BMCs (recorded trees of NVIDIA/libredfish): "GH200-24.05-2", "GB200Nvl-24.12-8"; Lenovo's
# "42S-2.83" in its inventory is "TGBT42S 2.83 2023-07-05" in its manager; HPE's "2.72 Sep 04 2022"
# in its inventory is "iLO 5 v2.72" in its manager
_BOARD_BMC = re.compile(r"([A-Za-z]+[A-Za-z0-9]*)-\d+\.\d+-\d+(?:-rc\d+)?")
_LENOVO_BMC = re.compile(r"(?:[A-Z]{3}[A-Z0-9])?\d{2}[A-Z][- ](\d+\.\d+)(?: \d{4}-\d\d-\d\d)?")
_HPE_BMC = re.compile(r"(?:iLO \d+ )?v?(\d+\.\d+)(?: [A-Z][a-z]{2} \d\d \d{4})?")
_DEBIAN_TAIL = re.compile(r"[-+~].*$")
_PARTS = re.compile(r"\d+|[A-Za-z]+")


def _numbers(text: str, base: int = 10) -> Key | None:
    parts = text.split(".")
    if any(len(part) > _NUMBER_DIGITS_MAX for part in parts):
        return None
    return _trim(tuple(int(part, base) for part in parts))


def _trim(parts: tuple[int, ...]) -> Key:
    """Trailing zeros say nothing: 1.2 and 1.2.0 are one version, and order stays total."""
    end = len(parts)
    while end > 1 and parts[end - 1] == 0:
        end -= 1
    return parts[:end]


def _dotted(text: str) -> Key | None:
    """Dotted decimal, "32.44.1036"; `_` as a separator too, as "35_2014_4652" (facts: V7)."""
    found = _DOTTED.fullmatch(text.replace("_", "."))
    return _numbers(found[1]) if found else None


def _nic(text: str) -> Key | None:
    """NIC firmware: "28.44.1036"; host BMCs print its third number as two, "28.44.10.36"."""
    match = _DOTTED.fullmatch(text)
    parts = match[1].split(".") if match else []
    if len(parts) == 4 and all(len(part) <= 2 for part in parts[2:]):
        parts[2:] = [f"{parts[2]}{parts[3]:0>2}"]
    return _numbers(".".join(parts)) if parts else None


def _dotted_hex(text: str) -> Key | None:
    """GPU and NVSwitch VBIOS: "96.00.89.00.01", "96.10.3F.00.01"; FPGA: "2.0E"."""
    found = _HEX.fullmatch(text)
    return _numbers(found[1], 16) if found else None


def _groups(pattern: re.Pattern[str], text: str) -> Key | None:
    found = pattern.fullmatch(text)
    if found is None or any(len(g) > _NUMBER_DIGITS_MAX for g in found.groups() if g):
        return None
    return tuple(int(g or 0) for g in found.groups())


def _erot(text: str) -> Key | None:
    """ERoT (CEC) firmware: "00.02.0134.0000_n00", shown short as "00.02.0134" by some tools."""
    return _groups(_EROT, text)


def _bluefield_bmc(text: str) -> Key | None:
    """BlueField BMC: "BF-24.10-10"; "25.10-LTSU2" is later than any plain build of 25.10."""
    found = _BF_BMC.fullmatch(text)
    if found is None or any(len(g) > _NUMBER_DIGITS_MAX for g in found.groups() if g):
        return None
    year, month, long_term, build = found.groups()
    return (int(year), int(month), 1 if long_term else 0, int(build or 0))


def _bfb(text: str) -> Key | None:
    """BlueField bundle: "2.9.0-90"; its date, OS and name are decoration.

    "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod" on the device is "2.9.0-90" in release notes. A
    card as delivered prints no build, "DOCA_2.5.0_BSP_4.5.0...": it comes before every build.
    """
    delivered = _groups(_DOCA_BFB, text)
    if delivered is not None:
        return (*delivered, 0)
    found = _BFB.fullmatch(text)
    if found is None or any(len(g) > _NUMBER_DIGITS_MAX for g in found.groups() if g):
        return None
    return tuple(int(g) for g in found.groups()[:4])


def _hgx_bmc(text: str) -> Key | None:
    """HGX BMC: "HGX-22.10-1-rc57"; a release without "-rc" comes after its candidates."""
    found = _HGX_BMC.fullmatch(text)
    if found is None or any(len(g) > _NUMBER_DIGITS_MAX for g in found.groups() if g):
        return None
    year, month, build, candidate = found.groups()
    last = (1, 0) if candidate is None else (0, int(candidate))
    return (int(year), int(month), int(build), *last)


def _host_bmc(text: str) -> Key | None:
    """A host's BMC, as its maker prints it; the first part is NVIDIA's board, "" for all others."""
    board = _BOARD_BMC.fullmatch(text)
    if board is not None:
        build = _hgx_bmc(text)
        return None if build is None else (board[1].lower(), *build)
    maker = _LENOVO_BMC.fullmatch(text) or _HPE_BMC.fullmatch(text)
    numbers = _dotted(maker[1] if maker else text)
    return None if numbers is None else ("", *numbers)


def _cumulus(text: str) -> Key | None:
    """Cumulus Linux image: "5.11.0.0026"; "5.11.0" is the train without its build."""
    return _groups(_CUMULUS, text)


def _doca(text: str) -> Key | None:
    """DOCA-Host and SPC-X CC packages: "2.9.0-0.4.7", "3.3.0-088814", "2.9.0072-1", "2.10"."""
    found = _DOCA.fullmatch(text)
    if found is None:
        return None
    release, build = _numbers(found[1]), _numbers(found[2] or "0")
    return None if release is None or build is None else (release, build)


def _driver(text: str) -> Key | None:
    """GPU driver and Fabric Manager: "535.129.03"; a Debian epoch and revision are decoration."""
    return _dotted(_DEBIAN_TAIL.sub("", text.partition(":")[2] or text))


def _bundle(text: str) -> Key | None:
    """HGX firmware package: "HGX-H100x8_0002_230517.3.0": by date and revision within one board."""
    board, _, rest = text.rpartition("_")
    key = _dotted(rest)
    board = re.sub(r"_\d{4}$", "", board).removeprefix("DGX-")
    return None if key is None or not board else (board, *key)


def _opaque(text: str) -> Key | None:
    return (text,)


GRAMMARS: dict[str, Callable[[str], Key | None]] = {
    "dotted": _dotted,
    "dotted_hex": _dotted_hex,
    "nic": _nic,
    "host_bmc": _host_bmc,
    "erot": _erot,
    "bfb": _bfb,
    "bluefield_bmc": _bluefield_bmc,
    "hgx_bmc": _hgx_bmc,
    "hgx_bundle": _bundle,
    "cumulus": _cumulus,
    "doca": _doca,
    "driver": _driver,
    "opaque": _opaque,
}


@lru_cache(maxsize=16_384)  # a fleet runs hundreds of distinct versions, not thousands
def key(grammar: str, version: str) -> Key | None:
    """The version as comparable parts, or None if it cannot be read in this grammar."""
    text = version.strip()
    read = GRAMMARS.get(grammar)
    if read is None or not text or len(text) > VERSION_CHARS_MAX or not text.isascii():
        return None
    return read(text)


def equal(grammar: str, a: str, b: str) -> bool:
    """True if both name one version: the same text, or the same meaning in the grammar."""
    if a.strip() == b.strip():
        return True
    left, right = key(grammar, a), key(grammar, b)
    return left is not None and left == right


def compare(grammar: str, a: str, b: str) -> int | None:
    """-1 if `a` is older than `b`, 0 if they are equal, 1 if newer, None if it cannot be told."""
    if equal(grammar, a, b):
        return 0
    if grammar == "opaque":
        return None
    left, right = key(grammar, a), key(grammar, b)
    if left is None or right is None:
        return None
    if isinstance(left[0], str) and left[0] != right[0]:
        return None  # packages of different boards are not older or newer than one another
    return -1 if left < right else 1
