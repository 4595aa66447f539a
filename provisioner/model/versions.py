"""Comparison of versions, each by the grammar of its component; None where they cannot be compared.

A version is parsed into a key of comparable parts, so that the versions of one grammar have a total
order. The grammars are those that devices print (docs/sources/hardware.md#grammars). Versions of
the grammar `opaque` can only be equal: none is newer than another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Key = tuple[Any, ...]  # of one shape within a grammar: integers, text, or tuples of integers

VERSION_CHARS_MAX = 128  # the longest published: 52 ("bf-bundle-..."); a BMC may send anything
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
# "GB200Nvl-25.08-B" (DGX GB300 release notes): its place among numbered builds is not published
_LETTER_BUILD = re.compile(r"[A-Za-z]+[A-Za-z0-9]*-\d+\.\d+-[A-Z]")
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
    """Drop trailing zeros: 1.2 and 1.2.0 are one version, and the order stays total."""
    end = len(parts)
    while end > 1 and parts[end - 1] == 0:
        end -= 1
    return parts[:end]


def _dotted(text: str) -> Key | None:
    """Parse dotted decimal, "32.44.1036"; `_` is a separator too, as in "35_2014_4652"
    (docs/sources/bmc-faults.md#v7).
    """
    match = _DOTTED.fullmatch(text.replace("_", "."))
    return _numbers(match[1]) if match else None


def _nic(text: str) -> Key | None:
    """Parse NIC firmware: "28.44.1036"; host BMCs print its third number as two, "28.44.10.36"."""
    match = _DOTTED.fullmatch(text)
    parts = match[1].split(".") if match else []
    if len(parts) == 4 and all(len(part) <= 2 for part in parts[2:]):
        parts[2:] = [f"{parts[2]}{parts[3]:0>2}"]
    return _numbers(".".join(parts)) if parts else None


def _dotted_hex(text: str) -> Key | None:
    """Parse a GPU or NVSwitch VBIOS: "96.00.89.00.01", "96.10.3F.00.01"; FPGA: "2.0E"."""
    match = _HEX.fullmatch(text)
    return _numbers(match[1], 16) if match else None


def _groups(pattern: re.Pattern[str], text: str) -> Key | None:
    match = pattern.fullmatch(text)
    if match is None or any(len(g) > _NUMBER_DIGITS_MAX for g in match.groups() if g):
        return None
    return tuple(int(g or 0) for g in match.groups())


def _erot(text: str) -> Key | None:
    """Parse ERoT (CEC) firmware: "00.02.0134.0000_n00"; some tools print it short, "00.02.0134"."""
    return _groups(_EROT, text)


def _bluefield_bmc(text: str) -> Key | None:
    """Parse a BlueField BMC: "BF-24.10-10"; "25.10-LTSU2" is later than any plain build of
    25.10.
    """
    match = _BF_BMC.fullmatch(text)
    if match is None or any(len(g) > _NUMBER_DIGITS_MAX for g in match.groups() if g):
        return None
    year, month, long_term, build = match.groups()
    return (int(year), int(month), 1 if long_term else 0, int(build or 0))


def _bfb(text: str) -> Key | None:
    """Parse a BlueField bundle: "2.9.0-90"; its date, OS and name are not compared.

    "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod" on the device is "2.9.0-90" in release notes. A
    card as delivered reports no build, "DOCA_2.5.0_BSP_4.5.0...": it comes before every build.
    """
    delivered = _groups(_DOCA_BFB, text)
    if delivered is not None:
        return (*delivered, 0)
    match = _BFB.fullmatch(text)
    if match is None or any(len(g) > _NUMBER_DIGITS_MAX for g in match.groups() if g):
        return None
    return tuple(int(g) for g in match.groups()[:4])


def _hgx_bmc(text: str) -> Key | None:
    """Parse an HGX BMC: "HGX-22.10-1-rc57"; a release without "-rc" comes after its candidates.

    A build with a letter, "GB200Nvl-25.08-B", equals itself and has no order.
    """
    if _LETTER_BUILD.fullmatch(text):
        return (text.lower(),)
    match = _HGX_BMC.fullmatch(text)
    if match is None or any(len(g) > _NUMBER_DIGITS_MAX for g in match.groups() if g):
        return None
    year, month, build, candidate = match.groups()
    last = (1, 0) if candidate is None else (0, int(candidate))
    return (int(year), int(month), int(build), *last)


def _host_bmc(text: str) -> Key | None:
    """Parse a host's BMC as its maker prints it; the first part is NVIDIA's board, "" for all
    others.
    """
    if _LETTER_BUILD.fullmatch(text):
        return (text.lower(),)
    board = _BOARD_BMC.fullmatch(text)
    if board is not None:
        build = _hgx_bmc(text)
        return None if build is None else (board[1].lower(), *build)
    maker = _LENOVO_BMC.fullmatch(text) or _HPE_BMC.fullmatch(text)
    numbers = _dotted(maker[1] if maker else text)
    return None if numbers is None else ("", *numbers)


def _cumulus(text: str) -> Key | None:
    """Parse a Cumulus Linux image: "5.11.0.0026"; "5.11.0" is the train without its build."""
    return _groups(_CUMULUS, text)


def _doca(text: str) -> Key | None:
    """Parse DOCA-Host and SPC-X CC packages: "2.9.0-0.4.7", "3.3.0-088814", "2.9.0072-1",
    "2.10".
    """
    match = _DOCA.fullmatch(text)
    if match is None:
        return None
    release = _numbers(match[1])
    build = _numbers(match[2] or "0")
    return None if release is None or build is None else (release, build)


def _driver(text: str) -> Key | None:
    """Parse a GPU driver or Fabric Manager: "535.129.03"; a Debian epoch and revision are
    ignored.
    """
    return _dotted(_DEBIAN_TAIL.sub("", text.partition(":")[2] or text))


def _bundle(text: str) -> Key | None:
    """Parse an HGX firmware package, "HGX-H100x8_0002_230517.3.0": date and revision within one
    board.
    """
    board, _, date_and_revision = text.rpartition("_")
    key = _dotted(date_and_revision)
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
def parse_version(grammar: str, version: str) -> Key | None:
    """Return the version as comparable parts, or None if this grammar cannot parse it."""
    text = version.strip()
    read = GRAMMARS.get(grammar)
    if read is None or not text or len(text) > VERSION_CHARS_MAX or not text.isascii():
        return None
    return read(text)


def is_same_version(grammar: str, a: str, b: str) -> bool:
    """Return whether both texts name one version: the same text, or the same key in the grammar."""
    if a.strip() == b.strip():
        return True
    key_a = parse_version(grammar, a)
    key_b = parse_version(grammar, b)
    return key_a is not None and key_a == key_b


def compare(grammar: str, a: str, b: str) -> int | None:
    """Return -1 if `a` is older than `b`, 0 if equal, 1 if newer, None if not comparable."""
    if is_same_version(grammar, a, b):
        return 0
    if grammar == "opaque":
        return None
    key_a = parse_version(grammar, a)
    key_b = parse_version(grammar, b)
    if key_a is None or key_b is None:
        return None
    named = isinstance(key_a[0], str) or isinstance(key_b[0], str)
    if named and key_a[0] != key_b[0]:
        return None  # versions of packages for different boards have no order
    return -1 if key_a < key_b else 1
