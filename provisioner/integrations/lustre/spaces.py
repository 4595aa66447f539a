"""Spaces on Lustre: `ports.storage.Spaces` by `lctl` on the MGS, over SSH.

A space is a nodemap whose clients mount its one fileset (Lustre Operations Manual, "Isolation").
A client that is in no nodemap falls to `default`, and a nodemap without a fileset shows the whole
file system. So nothing is opened while `default` lets anybody in or a server would be squashed, and
a nodemap without its fileset is closed: no root, ids not trusted, unknown ids denied. An address is
a range of its own, since the manual says that only a whole range can be deleted.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.integrations.lustre import nodemaps as maps
from provisioner.integrations.lustre.lctl_calls import KeyShell, LctlCalls, Refused
from provisioner.integrations.lustre.nodemaps import Nodemap, SpaceNames
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import (
    Export,
    SpaceAct,
    SpaceState,
    SpaceVerb,
    count_addresses,
    describe_set,
    intersect,
    make_set,
    make_set_of,
    subtract,
)
from provisioner.ports import Clock, Remote, Secret
from provisioner.settings import Settings

ADMITTED_MAX = 65_536  # addresses of one act


@dataclass(frozen=True)
class LustreSite:
    """What the settings say of a file system."""

    address: str
    servers: tuple[str, ...]  # NIDs of MGS, MDS and OSS
    names: SpaceNames
    squash_id: int = 65534
    settle_s: float = 15.0  # the manual: around ten seconds until the servers have a change


class LustreSpaces:
    """Acts are absolute; each ends with a reading of what it changed."""

    def __init__(self, calls: LctlCalls, site: LustreSite, clock: Clock) -> None:
        self._calls = calls
        self._site = site
        self._clock = clock

    async def read(self, spaces: Collection[str]) -> Mapping[str, SpaceState] | Blocker:
        seen = await self._look()
        if isinstance(seen, Blocker):
            return seen
        return {space: self._state(space, seen) for space in spaces}

    async def find_names(self, handles: Collection[str]) -> Mapping[str, str] | Blocker:
        seen = await self._look()
        if isinstance(seen, Blocker):
            return seen
        named = {n.handle: n.name for n in seen.values()}
        return {h: maps.name_space(named[h]) for h in handles if h in named}

    async def find_admitting(
        self, addresses: Collection[str]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        seen = await self._look()
        if isinstance(seen, Blocker):
            return seen
        if (open_default := self._find_open_default(seen)) is not None:
            return open_default
        holders = {a: maps.find_holder(seen, make_set_of([a])) for a in addresses}
        return {a: frozenset(maps.name_space(n) for n in names) for a, names in holders.items()}

    async def apply(self, act: SpaceAct) -> Blocker | None:
        try:
            return await self._apply(act)
        except Refused as refused:
            unblock = (
                "Look at the nodemap with `lctl get_param nodemap.*` on the MGS; it is tried again "
                "by itself."
            )
            return _blocker(Reason.REFUSED, act.space, str(refused), unblock)

    async def close(self) -> None:
        await self._calls.close()

    # --- readings

    async def _look(self) -> Mapping[str, Nodemap] | Blocker:
        """Return every nodemap, read now; a Blocker where none of them would hold."""
        try:
            needed = [f"nodemap.*.{p}" for p in maps.READ]
            output = await self._calls.read(["nodemap.active", *needed])
            more = [await self._calls.read_optional(f"nodemap.*.{p}") for p in maps.OPTIONAL]
        except Refused as refused:
            unblock = "Give the address of the MGS, with Lustre 2.12.51 or later, as its user."
            reason = Reason.NOT_OFFERED if refused.missing else Reason.REFUSED
            return _blocker(reason, "mgs", str(refused), unblock)
        active, seen = maps.parse_nodemaps(output, *more)
        if not active:
            return _blocker(
                Reason.PRECONDITION,
                "mgs",
                "nodemaps are not active, so that every client reaches the whole file system",
                "Put all servers into a nodemap with `admin` and `trusted` first, then run "
                "`lctl nodemap_activate 1` on the MGS (the daemon never does).",
            )
        return seen

    def _state(self, space: str, seen: Mapping[str, Nodemap]) -> SpaceState:
        name = maps.name_nodemap(space)
        nodemap = None if name is None else seen.get(name)
        if nodemap is None:
            return SpaceState()
        closed = not seen[maps.DEFAULT].is_open
        return maps.read_space(nodemap, space, self._site.names, standard=closed)

    def _find_open_default(self, seen: Mapping[str, Nodemap]) -> Blocker | None:
        if not seen[maps.DEFAULT].is_open:
            return None
        return _blocker(
            Reason.PRECONDITION,
            "nodemap/default",
            "it lets in every client that is in no other nodemap, so that nobody can be shut out",
            "Set its `admin` and `trusted` to 0 and `deny_unknown` to 1 with `lctl nodemap_modify "
            "--name default`, after all servers are in a nodemap of their own.",
        )

    def _find_unsafe(self, seen: Mapping[str, Nodemap]) -> Blocker | None:
        """Return why nothing may be opened on this file system."""
        if (open_default := self._find_open_default(seen)) is not None:
            return open_default
        nid = maps.find_squashed(seen, self._site.servers)
        if nid is None:
            return None
        return _blocker(
            Reason.PRECONDITION,
            "nodemap/servers",
            f"the server {nid} is in no nodemap with `admin` and `trusted`: it would be squashed",
            f"On the MGS: `lctl nodemap_add servers`, `lctl nodemap_add_range --name servers "
            f"--range {nid}`, then `lctl nodemap_modify --name servers --property admin --value 1`"
            f" and `trusted`; or correct `servers` in `storage.options`.",
        )

    # --- acts

    async def _apply(self, act: SpaceAct) -> Blocker | None:
        name = maps.name_nodemap(act.space)
        if name is None:
            return _blocker(
                Reason.NOT_OFFERED,
                act.space,
                f"no nodemap can be called so: letters, digits and -, at most {maps.NAME_MAX}",
                "Give the tenant, or `storage.prefix`, a shorter name.",
            )
        seen = await self._look()
        if isinstance(seen, Blocker):
            return seen
        if act.verb in _OPENING and (unsafe := self._find_unsafe(seen)) is not None:
            return unsafe
        nodemap = seen.get(name)
        if act.verb is SpaceVerb.MAKE:
            return await self._make(act, name, nodemap)
        if nodemap is None:
            return None if act.verb in _CLOSING else _other(act, "its nodemap is gone")
        if act.handle and nodemap.handle != act.handle:
            return _other(act, "another nodemap has its name")
        steps: Mapping[SpaceVerb, Callable[[SpaceAct, Nodemap, Mapping[str, Nodemap]], Any]] = {
            SpaceVerb.LIMIT: self._limit,
            SpaceVerb.EXPORT: self._export,
            SpaceVerb.ADMIT: self._admit,
            SpaceVerb.EXPEL: self._expel,
            SpaceVerb.UNEXPORT: self._unexport,
            SpaceVerb.REMOVE: self._remove,
        }
        blocker: Blocker | None = await steps[act.verb](act, nodemap, seen)
        if blocker is None:
            blocker = await self._prove(act)
        if blocker is None and act.verb in (SpaceVerb.EXPEL, SpaceVerb.UNEXPORT):
            await self._clock.sleep(self._site.settle_s)
        return blocker

    async def _make(self, act: SpaceAct, name: str, nodemap: Nodemap | None) -> Blocker | None:
        if nodemap is not None:
            detail = f"a nodemap {name} is there already"
            return _blocker(Reason.DUPLICATE, act.space, detail, "Rename or remove it on the MGS.")
        if act.encrypted:
            return _not_offered(act, "nodemaps have no encryption by keys of a tenant")
        await self._calls.change([["nodemap_add", name], *_close(name)])
        return await self._prove(act)

    async def _limit(
        self, act: SpaceAct, nodemap: Nodemap, seen: Mapping[str, Nodemap]
    ) -> Blocker | None:
        return None if act.quota_bytes is None else _not_offered(act, _NO_QUOTA)

    async def _export(
        self, act: SpaceAct, nodemap: Nodemap, seen: Mapping[str, Nodemap]
    ) -> Blocker | None:
        """Close the nodemap, give it its fileset, read that back, and trust its ids at last."""
        export = act.export
        assert export is not None
        if (why := _find_unoffered(export, nodemap, self._site, act.space)) is not None:
            return _not_offered(act, why)
        held = make_set(r.held for r in nodemap.ranges if r.held is not None)
        if excess := subtract(held, act.clients):
            return _other(act, f"it has {describe_set(excess)}, for whom it may not be opened")
        path = f"{self._site.names.directory(act.space)}{export.path}"
        at = nodemap.primary
        if at is None or at.path != path:
            await self._calls.change([*_close(nodemap.name), *_write_fileset(nodemap, path)])
        elif at.read_only:
            await self._calls.change([_edit_fileset(nodemap.name, path, "--rw")])
        again = await self._look()
        if isinstance(again, Blocker):
            return again
        seen_set = again[nodemap.name].primary if nodemap.name in again else None
        if seen_set is None or seen_set.path != path or seen_set.read_only:
            return _unproved(act, "its fileset is not the one that was set")
        properties = {
            "deny_unknown": "1",
            "squash_uid": str(self._site.squash_id),
            "squash_gid": str(self._site.squash_id),
            "rbac": None if nodemap.rbac is None else maps.ROLES,
            "readonly_mount": None
            if nodemap.readonly_mount is None
            else _bit(value=export.read_only),
            "admin": _bit(value=not export.root_squash),
            "trusted": "1",
        }
        await self._calls.change(_modify(nodemap.name, properties))
        return None

    async def _admit(
        self, act: SpaceAct, nodemap: Nodemap, seen: Mapping[str, Nodemap]
    ) -> Blocker | None:
        if any(ipaddress.ip_address(r.first).version != 4 for r in act.clients):
            return _not_offered(act, "clients by IPv6 addresses")
        if count_addresses(act.clients) > ADMITTED_MAX:
            return _not_offered(act, f"more than {ADMITTED_MAX} addresses in one act")
        held = self._state(act.space, seen).clients
        missing = subtract(act.clients, held)
        others = maps.find_holder(seen, missing) - {nodemap.name}
        if others or nodemap.name in maps.find_holder(seen, missing):
            owner = min(others, default=nodemap.name)
            return _blocker(
                Reason.DUPLICATE,
                act.space,
                f"{describe_set(missing)}: nodemap {owner} has of these already",
                f"Delete that range from {owner} on the MGS (`lctl nodemap_del_range`).",
            )
        if nodemap.is_open and not nodemap.filesets:
            await self._calls.change(_close(nodemap.name))
        await self._calls.change(
            [
                _range("add", nodemap.name, str(address), self._site.names.net)
                for first, last in missing
                for address in _each(first, last)
            ]
        )
        return None

    async def _expel(
        self, act: SpaceAct, nodemap: Nodemap, seen: Mapping[str, Nodemap]
    ) -> Blocker | None:
        """Delete every range that has one of these, and add what else was in it."""
        deleted: list[list[str]] = []
        added: list[list[str]] = []
        for one in nodemap.ranges:
            if one.held is None or not intersect((one.held,), act.clients):
                continue
            written = maps.write_range(one.held, one.net)
            if written is None:
                detail = f"its range {one.start}-{one.end} was not made by one expression"
                return _other(act, detail)
            deleted.append(["nodemap_del_range", "--name", nodemap.name, "--range", written])
            left = maps.write_ranges(subtract((one.held,), act.clients), one.net)
            added += [["nodemap_add_range", "--name", nodemap.name, "--range", r] for r in left]
        await self._calls.change([*deleted, *added])
        return None

    async def _unexport(self, act: SpaceAct, nodemap: Nodemap, seen: Mapping[str, Nodemap]) -> None:
        """Close the nodemap; its fileset stays, so that it never shows the whole file system."""
        export = act.export
        assert export is not None
        state = self._state(act.space, seen)
        alternates = [
            f.path
            for f in nodemap.filesets
            if not f.primary
            and state.exports.get(export.name) is not None
            and maps.name_export(f.path, act.space, self._site.names)[0] == export.name
        ]
        if alternates:
            words = ["nodemap_fileset_del", "--name", nodemap.name, "--fileset", alternates[0]]
            await self._calls.change([words])
        elif export.name in state.exports:
            await self._calls.change(_close(nodemap.name))

    async def _remove(
        self, act: SpaceAct, nodemap: Nodemap, seen: Mapping[str, Nodemap]
    ) -> Blocker | None:
        if nodemap.ranges:
            return _other(act, f"nodemap {nodemap.name} still has clients")
        commands = [["nodemap_del", nodemap.name]]
        if not nodemap.listed and nodemap.filesets:
            commands.append(["set_param", "-P", "-d", f"nodemap.{nodemap.name}.fileset"])
        await self._calls.change(commands)
        return None

    # --- proofs

    async def _prove(self, act: SpaceAct) -> Blocker | None:
        """Return what the reading after an act shows of it that is not as asked."""
        seen = await self._look()
        if isinstance(seen, Blocker):
            return seen
        state = self._state(act.space, seen)
        nodemap = seen.get(maps.name_nodemap(act.space) or "")
        if act.verb is SpaceVerb.REMOVE:
            return None if nodemap is None else _unproved(act, "its nodemap is still there")
        if nodemap is None:
            return _unproved(act, "its nodemap is not there")
        export = None if act.export is None else state.exports.get(act.export.name)
        match act.verb:
            case SpaceVerb.MAKE:
                wrong = nodemap.is_open or bool(nodemap.ranges)
                return _unproved(act, "its nodemap is not closed") if wrong else None
            case SpaceVerb.UNEXPORT:
                return None if export is None else _unproved(act, f"{export.name} is still open")
            case SpaceVerb.EXPORT:
                asked = act.export
                assert asked is not None
                if (
                    export is None
                    or export.foreign
                    or export.clients != act.clients
                    or (
                        (export.read_only, export.root_squash)
                        != (asked.read_only, asked.root_squash)
                    )
                ):
                    return _unproved(act, "the nodemap does not have its rules")
            case SpaceVerb.ADMIT:
                if missing := subtract(act.clients, state.clients):
                    return _unproved(act, f"{describe_set(missing)} is not let in")
            case SpaceVerb.EXPEL:
                held = make_set(r.held for r in nodemap.ranges if r.held is not None)
                if left := intersect(act.clients, held):
                    return _unproved(act, f"{describe_set(left)} is still let in")
        return None


_OPENING = (SpaceVerb.MAKE, SpaceVerb.EXPORT, SpaceVerb.ADMIT)
_CLOSING = (SpaceVerb.EXPEL, SpaceVerb.UNEXPORT, SpaceVerb.REMOVE)
_NO_QUOTA = (
    "a limit: Lustre's project quotas are set and read on a mounted client (`lfs setquota -p`), "
    "not by lctl on the MGS"
)


def _find_unoffered(export: Export, nodemap: Nodemap, site: LustreSite, space: str) -> str | None:
    """Return what an export asks that this file system cannot give."""
    if export.quota_bytes is not None:
        return _NO_QUOTA
    if export.path != f"/{export.name}":
        return f"an export with another name than its directory: give it the path /{export.name}"
    if export.read_only and nodemap.readonly_mount is None:
        return "read-only exports: this Lustre has no property `readonly_mount`"
    if not export.root_squash and nodemap.rbac is None:
        return "root in an export: this Lustre has no property `rbac`, which keeps root in it"
    at = nodemap.primary
    if nodemap.is_open and at is not None:
        name = maps.name_export(at.path, space, site.names)[0]
        if name not in (export.name, at.path):
            return f"more than one export of a tenant: its nodemap has the fileset of {name}"
    return None


def _close(name: str) -> list[list[str]]:
    return _modify(name, {"trusted": "0", "admin": "0", "deny_unknown": "1"})


def _modify(name: str, properties: Mapping[str, str | None]) -> list[list[str]]:
    return [
        ["nodemap_modify", "--name", name, "--property", key, "--value", value]
        for key, value in properties.items()
        if value is not None
    ]


def _write_fileset(nodemap: Nodemap, path: str) -> list[list[str]]:
    """Return the commands that set a fileset; before Lustre 2.17 also those that keep it."""
    commands = [["nodemap_set_fileset", "--name", nodemap.name, "--fileset", path]]
    if not nodemap.listed:
        commands.append(["set_param", "-P", f"nodemap.{nodemap.name}.fileset={path}"])
    return commands


def _edit_fileset(name: str, path: str, change: str) -> list[str]:
    return ["nodemap_fileset_modify", "--name", name, "--fileset", path, change]


def _range(verb: str, name: str, address: str, net: str) -> list[str]:
    return [f"nodemap_{verb}_range", "--name", name, "--range", f"{address}@{net}"]


def _each(first: str, last: str) -> list[ipaddress.IPv4Address]:
    low = int(ipaddress.IPv4Address(first))
    high = int(ipaddress.IPv4Address(last))
    return [ipaddress.IPv4Address(number) for number in range(low, high + 1)]


def _bit(*, value: bool) -> str:
    return "1" if value else "0"


def _blocker(reason: Reason, space: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=f"storage/{space}", detail=detail[:300], unblock=unblock)


def _not_offered(act: SpaceAct, detail: str) -> Blocker:
    unblock = "Change the tenant's `file_storage`, or have it done by hand beside the daemon."
    return _blocker(Reason.NOT_OFFERED, act.space, f"Lustre does not offer {detail}", unblock)


def _other(act: SpaceAct, detail: str) -> Blocker:
    unblock = "Look at the nodemap on the MGS; it is read again and decided upon by itself."
    return _blocker(Reason.PRECONDITION, act.space, detail, unblock)


def _unproved(act: SpaceAct, detail: str) -> Blocker:
    words = f"lctl took the commands ({act.verb}), and a reading shows: {detail}"
    return _blocker(Reason.CANNOT_TELL, act.space, words, "It is read and tried again by itself.")


# ------------------------------------------------------------------------------
# Settings.


def read_site(settings: Settings) -> LustreSite:
    """Return what `storage` says. Raises InputError."""
    system = settings.storage
    assert system is not None
    options = system.options
    known = {
        "servers",
        "lnet",
        "root",
        "filesystem",
        "squash_id",
        "settle_s",
        "known_hosts",
        "port",
    }
    if unknown := sorted(set(options) - known):
        raise _wrong(unknown[0], f"there is no such option ({', '.join(sorted(known))})")
    servers = tuple(options.get("servers", "").split())
    if not servers or not all(maps.is_nid(nid) for nid in servers):
        raise _wrong("servers", "it lists no NIDs of all servers, as 192.0.2.1@o2ib 192.0.2.2@o2ib")
    net = options.get("lnet", "tcp")
    root = options.get("root", "/")
    if not maps.is_net(net):
        raise _wrong("lnet", "it is no LNet network, as tcp or o2ib1")
    if not maps.is_path(root):
        raise _wrong("root", "it is no directory, as /tenants")
    if not options.get("known_hosts"):
        raise _wrong("known_hosts", "no file with the MGS's SSH host key is named")
    mgs = ":".join(system.pools)
    filesystem = options.get("filesystem", "")
    mount = f"{mgs}:/{filesystem}" if mgs and filesystem else ""
    numbers = {
        name: _read_number(options, name, low, high, usual)
        for name, low, high, usual in (
            ("squash_id", 1, 2**32 - 2, 65534),
            ("settle_s", 0, 600, 15),
            ("port", 1, 65535, 22),
        )
    }
    names = SpaceNames(root, net, mount)
    return LustreSite(
        system.address, servers, names, numbers["squash_id"], float(numbers["settle_s"])
    )


def _read_number(options: Mapping[str, str], name: str, low: int, high: int, usual: int) -> int:
    text = options.get(name, str(usual))
    if not (text.isascii() and text.isdigit() and len(text) < 11 and low <= int(text) <= high):
        raise _wrong(name, f"it is no number from {low} to {high}")
    return int(text)


def _wrong(option: str, problem: str) -> InputError:
    return InputError("settings", f"storage.options.{option}", problem, "See docs/storage.md.")


@asynccontextmanager
async def open_spaces(
    settings: Settings, secret: Secret, clock: Clock, ca_file: Path | None
) -> AsyncIterator[LustreSpaces]:
    """Yield the spaces of the file system whose MGS the settings name; close SSH at the end."""
    site = read_site(settings)
    system = settings.storage
    assert system is not None
    remote = Remote(
        user=system.username or "root",
        known_hosts=Path(system.options["known_hosts"]),
        port=int(system.options.get("port", "22")),
    )
    spaces = LustreSpaces(LctlCalls(KeyShell(remote, secret), site.address), site, clock)
    try:
        yield spaces
    finally:
        await spaces.close()
