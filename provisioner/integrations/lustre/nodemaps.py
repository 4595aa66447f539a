"""What `lctl get_param nodemap.*` prints, and nodemaps as spaces. Pure.

Sources: Lustre Operations Manual, chapters "Mapping UIDs and GIDs with Nodemap" and "Managing
Security" (doc.lustre.org, git.whamcloud.com/doc/manual: LustreNodemap.xml, LustreSecurity
.xml), and what prints it, lustre/ptlrpc/nodemap_lproc.c. Everything printed is hostile until it is
read here: half a list, a flag that is neither 0 nor 1 and a line of no parameter are `Malformed`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.model.storage import (
    AddressRange,
    AddressSet,
    SeenExport,
    SpaceState,
    intersect,
    make_set,
)
from provisioner.ports import Malformed

DEFAULT = "default"  # the nodemap of every client that is in no other one
NAME_MAX = 16  # LUSTRE_NODEMAP_NAME_LENGTH of lustre_idl.h
ENTRIES_MAX = 100_000  # ranges of one nodemap
NODEMAPS_MAX = 10_000
READ = (
    *("id", "ranges", "idmap", "fileset"),
    *("admin_nodemap", "trusted_nodemap", "deny_unknown", "squash_uid", "squash_gid"),
)
OPTIONAL = ("rbac", "readonly_mount")  # properties that not every release has
UNKNOWN_TO_DEFAULT = frozenset({"ranges", "idmap"})  # some releases print neither for it
ROLES = "file_perms"  # the one role of a tenant; by FID, or by quota, it would leave its fileset
_HEAD = re.compile(r"nodemap\.(?:([A-Za-z0-9_]{1,64})\.)?([a-z_]{1,40})=(.*)")
_RANGE = re.compile(
    r"\{ id: ([0-9]{1,10}), start_nid: ([^\s,{}]{1,80}), end_nid: ([^\s,{}]{1,80}) \}"
)
_FILESET = re.compile(r"\{ (primary|alternate):\s{1,8}(/[^\s,{}\[\]]{0,4095})(, mode: ro)? \}")
_NET = re.compile(r"(lo|tcp|o2ib|gni|kfi)[0-9]{0,5}")
_PATH = re.compile(r"(/[A-Za-z0-9_.-]{1,255}){1,32}")


@dataclass(frozen=True)
class NidRange:
    """NIDs from first to last. `held` None: they are no IP addresses."""

    start: str
    end: str
    net: str
    held: AddressRange | None


@dataclass(frozen=True)
class Fileset:
    path: str
    primary: bool = True
    read_only: bool = False


@dataclass(frozen=True)
class Nodemap:
    """One nodemap. `rbac`, `readonly_mount` None: this Lustre has no such property.

    `listed`: its filesets are printed as a list, as Lustre does that keeps them by itself (2.17).
    """

    name: str
    number: int
    ranges: tuple[NidRange, ...]
    mapped: bool
    filesets: tuple[Fileset, ...]
    listed: bool
    admin: bool
    trusted: bool
    deny_unknown: bool
    squash_uid: int
    squash_gid: int
    rbac: frozenset[str] | None = None
    readonly_mount: bool | None = None

    @property
    def is_open(self) -> bool:
        """Whether anybody of its clients can read anything."""
        return self.admin or self.trusted or self.mapped or not self.deny_unknown

    @property
    def primary(self) -> Fileset | None:
        return next((f for f in self.filesets if f.primary), None)

    @property
    def handle(self) -> str:
        return f"{self.name}#{self.number}"


@dataclass(frozen=True)
class SpaceNames:
    """How spaces are called: below which directory, on which network, mounted from where."""

    root: str = "/"
    net: str = "tcp"
    mount: str = ""

    def directory(self, space: str) -> str:
        return f"{self.root.rstrip('/')}/{space}"


def name_nodemap(space: str) -> str | None:
    """Return the nodemap of a space; None: no nodemap can have such a name."""
    name = space.replace("-", "_")
    right = 0 < len(name) <= NAME_MAX and re.fullmatch(r"[A-Za-z0-9_]+", name) and "_" not in space
    return name if right and name != DEFAULT else None


def name_space(nodemap: str) -> str:
    """Return the space of a nodemap, of whichever hand: the opposite of `name_nodemap`."""
    return nodemap.replace("_", "-")


# ------------------------------------------------------------------------------
# Outputs.


def parse_params(output: str) -> Mapping[tuple[str, str], str]:
    """Return (nodemap, parameter) -> value; nodemap "" for those of all. Raises Malformed."""
    found: dict[tuple[str, str], list[str]] = {}
    at: list[str] | None = None
    for line in output.splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            key = (head[1] or "", head[2])
            if key in found:
                raise Malformed(f"lctl: {'.'.join(key)[:80]} is printed twice")
            at = found[key] = [head[3]]
        elif at is not None and (at[0].startswith("[") or not at[0]):
            at.append(line)
        elif line.strip():
            raise Malformed("lctl: a line that belongs to no parameter")
    if len({nodemap for nodemap, _ in found}) > NODEMAPS_MAX:
        raise Malformed("lctl: more nodemaps than can be")
    return {key: "\n".join(lines).strip() for key, lines in found.items()}


def parse_ranges(text: str) -> tuple[NidRange, ...]:
    """Return the ranges of a nodemap. Raises Malformed."""
    found = []
    for entry in _entries(text, _RANGE, "ranges"):
        start, net = _split_nid(entry[2])
        end, other = _split_nid(entry[3])
        if net != other:
            raise Malformed("lctl: a range from one network to another one")
        found.append(NidRange(entry[2], entry[3], net, _addresses(start, end)))
    return tuple(found)


def parse_filesets(text: str) -> tuple[tuple[Fileset, ...], bool]:
    """Return (filesets, whether they are printed as a list). Raises Malformed."""
    if text.startswith("["):
        found = tuple(
            Fileset(entry[2], entry[1] == "primary", bool(entry[3]))
            for entry in _entries(text, _FILESET, "filesets")
        )
        if sum(f.primary for f in found) > 1:
            raise Malformed("lctl: a nodemap with two primary filesets")
        return found, True
    if not text:
        return (), False
    if not text.startswith("/") or len(text) > 4096 or not text.isprintable() or " " in text:
        raise Malformed("lctl: no readable fileset")
    return (Fileset(text),), False


def parse_nodemaps(output: str, *optional: str) -> tuple[bool, Mapping[str, Nodemap]]:
    """Return (whether nodemaps are active, all of them). `optional`: outputs of what not every
    Lustre has, "" where this one has it not. Raises Malformed.
    """
    params = parse_params(output)
    active = _flag(params, "", "active")
    names = sorted({nodemap for nodemap, _ in params if nodemap})
    more: dict[tuple[str, str], str] = {}
    for one in optional:
        more |= parse_params(one)
    if DEFAULT not in names:
        raise Malformed("lctl: the default nodemap is not printed")
    offered = {parameter for _, parameter in more}
    lost = [n for n in names if n != DEFAULT for p in offered if (n, p) not in more]
    if lost:
        raise Malformed(f"lctl: nodemap {lost[0]} is in one list and not in another one")
    return active, {name: _parse_nodemap(name, params, more) for name in names}


def _parse_nodemap(
    name: str, params: Mapping[tuple[str, str], str], more: Mapping[tuple[str, str], str]
) -> Nodemap:
    said = dict(params)
    if name == DEFAULT:
        said = {(name, p): "[]" for p in UNKNOWN_TO_DEFAULT} | said
    filesets, listed = parse_filesets(_value(said, name, "fileset"))
    roles = more.get((name, "rbac"))
    return Nodemap(
        name=name,
        number=_number(said, name, "id"),
        ranges=parse_ranges(_value(said, name, "ranges")),
        mapped=_has_entries(_value(said, name, "idmap")),
        filesets=filesets,
        listed=listed,
        admin=_flag(said, name, "admin_nodemap"),
        trusted=_flag(said, name, "trusted_nodemap"),
        deny_unknown=_flag(said, name, "deny_unknown"),
        squash_uid=_number(said, name, "squash_uid"),
        squash_gid=_number(said, name, "squash_gid"),
        rbac=None if roles is None else _roles(roles),
        readonly_mount=(
            _flag(more, name, "readonly_mount") if (name, "readonly_mount") in more else None
        ),
    )


def _entries(text: str, form: re.Pattern[str], what: str) -> Iterator[re.Match[str]]:
    """Yield the entries of a list in brackets, with commas between them, to its closing one."""
    if not text.startswith("[") or not text.endswith("]") or len(text) < 2:
        raise Malformed(f"lctl: a list of {what} without its end")
    inside = text[1:-1].strip()
    at = count = 0
    while at < len(inside):
        entry = form.match(inside, at)
        count += 1
        if entry is None or count > ENTRIES_MAX:
            raise Malformed(f"lctl: an entry of {what} cannot be read")
        yield entry
        at = entry.end()
        while at < len(inside) and inside[at].isspace():
            at += 1
        if at == len(inside):
            return
        if inside[at] != ",":
            raise Malformed(f"lctl: an entry of {what} cannot be read")
        at += 1
        while at < len(inside) and inside[at].isspace():
            at += 1
        if at == len(inside):
            raise Malformed(f"lctl: a list of {what} without its end")


def _has_entries(text: str) -> bool:
    if not text.startswith("[") or not text.endswith("]") or len(text) < 2:
        raise Malformed("lctl: a list of idmaps without its end")
    return bool(text[1:-1].strip())


def _value(params: Mapping[tuple[str, str], str], nodemap: str, parameter: str) -> str:
    value = params.get((nodemap, parameter))
    if value is None:
        raise Malformed(f"lctl: nodemap {nodemap or '(all)'} without its {parameter}")
    return value


def _number(params: Mapping[tuple[str, str], str], nodemap: str, parameter: str) -> int:
    value = _value(params, nodemap, parameter)
    if not re.fullmatch(r"[0-9]{1,10}", value):
        raise Malformed(f"lctl: nodemap {nodemap}: {parameter} is no number")
    return int(value)


def _flag(params: Mapping[tuple[str, str], str], nodemap: str, parameter: str) -> bool:
    value = _value(params, nodemap, parameter)
    if value not in ("0", "1"):
        raise Malformed(f"lctl: nodemap {nodemap or '(all)'}: {parameter} is neither 0 nor 1")
    return value == "1"


def _roles(text: str) -> frozenset[str]:
    if not re.fullmatch(r"[a-z_]{1,40}(,[a-z_]{1,40}){0,40}", text):
        raise Malformed("lctl: no readable rbac")
    return frozenset() if text == "none" else frozenset(text.split(","))


def _split_nid(nid: str) -> tuple[str, str]:
    address, _, net = nid.partition("@")
    if not address or not _NET.fullmatch(net):
        raise Malformed("lctl: a range of what is no NID")
    return address, net


def _addresses(start: str, end: str) -> AddressRange | None:
    try:
        return make_set([(start, end)])[0]
    except ValueError:
        if any("." in text or ":" in text for text in (start, end)):
            raise Malformed("lctl: a range of what is no address") from None
        return None  # NIDs of networks without IP addresses


# ------------------------------------------------------------------------------
# A nodemap as a space.


def read_space(nodemap: Nodemap, space: str, names: SpaceNames, *, standard: bool) -> SpaceState:
    """Return a nodemap as a space. `standard`: clients of no nodemap are shut out.

    A closed nodemap has no export: its fileset stays, so that it is never open without one.
    """
    mine = [r.held for r in nodemap.ranges if r.held is not None and r.net == names.net]
    clients = make_set(mine)
    strange = [r.start for r in nodemap.ranges if r.held is None or r.net != names.net]
    foreign = [f"it lets in the NID {nid}" for nid in strange[:4]]
    if nodemap.mapped:
        foreign.append("ids are mapped in its nodemap")
    if not standard:
        foreign.append("clients of no nodemap are let in by the nodemap `default`")
    exports = {}
    if nodemap.is_open:
        sets = nodemap.filesets or ((Fileset("/"),) if nodemap.ranges else ())
        for one in sets:
            export = _read_fileset(nodemap, one, space, clients, names)
            exports[export.name] = export
    return SpaceState(nodemap.handle, clients, exports, foreign=tuple(foreign))


def name_export(path: str, space: str, names: SpaceNames) -> tuple[str, str]:
    """Return (name, path in the space) of a fileset; what is not within the space has its own."""
    within = f"{names.directory(space)}/"
    if not path.startswith(within):
        return path, path
    inner = path[len(within) - 1 :]
    return (inner if "/" in inner[1:] else inner[1:]), inner


def _read_fileset(
    nodemap: Nodemap, fileset: Fileset, space: str, clients: AddressSet, names: SpaceNames
) -> SeenExport:
    name, path = name_export(fileset.path, space, names)
    foreign = []
    if not fileset.primary:
        foreign.append("it is an alternate fileset")
    if not nodemap.trusted:
        foreign.append("its users are not those of its files")
    if not nodemap.deny_unknown:
        foreign.append("users that are not known are let in")
    if not nodemap.squash_uid or not nodemap.squash_gid:
        foreign.append("users that are not known are root")
    if nodemap.rbac is not None and nodemap.rbac != {ROLES}:
        foreign.append(f"its roles are {','.join(sorted(nodemap.rbac)) or 'none'}"[:80])
    return SeenExport(
        name=name,
        path=path,
        read_only=fileset.read_only or bool(nodemap.readonly_mount),
        root_squash=not nodemap.admin,
        clients=clients,
        mount=names.mount,
        foreign=tuple(foreign),
    )


def find_holder(nodemaps: Mapping[str, Nodemap], address: AddressSet) -> frozenset[str]:
    """Return the nodemaps that have one of these addresses, on whichever network."""
    return frozenset(
        name
        for name, one in nodemaps.items()
        if any(r.held is not None and intersect(address, (r.held,)) for r in one.ranges)
    )


def find_squashed(nodemaps: Mapping[str, Nodemap], servers: Sequence[str]) -> str | None:
    """Return a server's NID that is in no nodemap with `admin` and `trusted`; None: there is none.

    The manual: "Lustre server nodes must be in a policy group with both these properties".
    """
    for nid in servers:
        address, net = _split_nid(nid)
        held = make_set([(address, address)])
        right = any(
            one.admin and one.trusted and not one.filesets
            for one in nodemaps.values()
            for r in one.ranges
            if r.net == net and r.held is not None and intersect(held, (r.held,))
        )
        if not right:
            return nid
    return None


# ------------------------------------------------------------------------------
# Ranges as `lctl` takes them: `10.0.[2-3].[0-255]@tcp`, which has to be contiguous.


def write_range(held: AddressRange, net: str) -> str | None:
    """Return a range as one expression; None: it has none."""
    first, last = (ipaddress.ip_address(a) for a in held)
    if first.version != 4:
        return held.first + f"@{net}" if first == last else None
    low = first.packed
    high = last.packed
    at = next((i for i in range(4) if low[i] != high[i]), 4)
    if any(low[i] != 0 or high[i] != 255 for i in range(at + 1, 4)):
        return None
    parts = [str(low[i]) for i in range(at)]
    parts += [f"[{low[i]}-{high[i]}]" for i in range(at, 4)]
    return f"{'.'.join(parts)}@{net}"


def write_ranges(held: AddressSet, net: str) -> list[str]:
    """Return a set of IPv4 addresses as few expressions."""
    written = []
    for first, last in held:
        low = ipaddress.ip_address(first)
        high = ipaddress.ip_address(last)
        one = write_range(AddressRange(first, last), net)
        pieces = (
            [one]
            if one is not None
            else [
                write_range(AddressRange(str(n[0]), str(n[-1])), net)
                for n in ipaddress.summarize_address_range(low, high)
            ]
        )
        written += [p for p in pieces if p is not None]
    return written


def is_path(text: str) -> bool:
    return text == "/" or (_PATH.fullmatch(text) is not None and "/." not in text)


def is_nid(text: str) -> bool:
    address, _, net = text.partition("@")
    try:
        return ipaddress.ip_address(address).version == 4 and _NET.fullmatch(net) is not None
    except ValueError:
        return False


def is_net(text: str) -> bool:
    return _NET.fullmatch(text) is not None
