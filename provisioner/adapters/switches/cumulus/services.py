"""Time servers, syslog servers and logins of Cumulus Linux, as NVUE spells them by release.

Sources: NVIDIA's NVUE reference, "NTP", "Syslog", "TACACS" and "System Configuration", with the
release of each command, and the guide's chapter "TACACS" (CumulusNetworks/docs,
content/nvue-reference/Set-and-Unset-Commands and content/cumulus-linux-515):

- time servers are under `service ntp VRF` up to 5.14, under `system ntp` since 5.15;
- syslog servers are under `service syslog VRF` up to 5.12, under `system syslog` since 5.13;
- TACACS+ servers are named by their priority up to 5.11, and by their address since 5.12; until
  then TACACS+ has a switch of its own (`enable`); the lower number is asked first;
- NVUE shows an asterisk in place of a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.switches.cumulus import nvue_calls
from provisioner.adapters.switches.cumulus.dialect import read_release
from provisioner.adapters.switches.cumulus.nvue_calls import build_merge
from provisioner.adapters.switches.cumulus.nvue_line import NvueLine
from provisioner.adapters.switches.cumulus.revisions import Revisions
from provisioner.model.outcome import Reason
from provisioner.model.switch import SwitchServices
from provisioner.ports.switch import ServiceChange, SwitchRefused

SERVERS_MAX = 64  # of one service that are looked at
NTP_MOVED = (5, 15)
SYSLOG_MOVED = (5, 13)
TACACS_MOVED = (5, 12)
MANAGEMENT = "mgmt"  # the VRF of a switch's management port
# source: guide, "TACACS", exclude_users: accounts that are never looked up at a server
EXCLUDED = frozenset({"cumulus", "root"})
Tree = dict[str, Any]


class Services:
    """The services of one switch. Methods raise `PortError`."""

    def __init__(self, line: NvueLine, revisions: Revisions) -> None:
        self._line = line
        self._revisions = revisions

    async def read(self, source: str) -> SwitchServices:
        """Return the services of a tree: "applied" or "startup"."""
        release = await self._read_release()
        return read_services(await self._read_trees(source, release), release)

    async def apply(self, change: ServiceChange) -> str:
        """Apply what differs as one revision, and all of TACACS+ where a key comes with it."""
        user = self._line.address.username
        if change.logins and change.logins[0] == "tacacs" and user not in EXCLUDED:
            raise SwitchRefused(
                Reason.PRECONDITION,
                f"the daemon logs in as {user}, which TACACS+ would be asked about first; use "
                "`login_order: local,tacacs`, or the account cumulus",
            )
        release = await self._read_release()
        trees = await self._read_trees("applied", release)
        body = encode_change(change, trees, release)
        if not body:
            return ""
        return await self._revisions.apply(lambda name: [build_merge(name, body)])

    async def _read_release(self) -> tuple[int, ...]:
        images = nvue_calls.read_images(await self._line.get(nvue_calls.IMAGES_PATH))
        if isinstance(images, str):
            raise SwitchRefused(Reason.MALFORMED, images)
        return read_release(images.running)

    async def _read_trees(self, source: str, release: tuple[int, ...]) -> dict[str, Tree]:
        trees = {}
        for name, path in list_paths(release).items():
            answer = await self._line.find(nvue_calls.object_path(path, source))
            if answer is not None and not isinstance(answer, dict):
                raise SwitchRefused(Reason.MALFORMED, f"{'/'.join(path)}: not readable")
            trees[name] = answer or {}
        return trees


def list_paths(release: tuple[int, ...]) -> dict[str, tuple[str, ...]]:
    """Return where a release has each service."""
    return {
        "ntp": ("system", "ntp") if release[:2] >= NTP_MOVED else ("service", "ntp"),
        "syslog": ("system", "syslog") if release[:2] >= SYSLOG_MOVED else ("service", "syslog"),
        "aaa": ("system", "aaa"),
    }


def read_services(trees: Mapping[str, Tree], release: tuple[int, ...]) -> SwitchServices:
    """Return the services of what a switch shows; a form that is not known shows none."""
    tacacs = _get(trees["aaa"], "tacacs")
    servers = {key: entry for key, entry in _get(tacacs, "server").items() if _is_tree(entry)}
    asked = sorted(servers, key=lambda key: _rank(key, servers[key]))[:SERVERS_MAX]
    order = _get(trees["aaa"], "authentication-order")
    return SwitchServices(
        ntp=_list_servers(trees["ntp"], in_vrfs=release[:2] < NTP_MOVED),
        syslog=_list_servers(trees["syslog"], in_vrfs=release[:2] < SYSLOG_MOVED),
        tacacs=tuple(str(servers[key].get("host", key)) for key in asked),
        logins=tuple(_spell_login(order[key]) for key in sorted(order, key=_number)) or ("local",),
        tacacs_keyed=bool(servers) and all("secret" in entry for entry in servers.values()),
    )


def encode_change(
    change: ServiceChange, trees: Mapping[str, Tree], release: tuple[int, ...]
) -> Tree:
    """Return the merge that makes a change; {} if nothing differs. Null takes an entry away."""
    runs = read_services(trees, release)
    service: Tree = {}
    system: Tree = {}
    if change.ntp is not None and set(change.ntp) != set(runs.ntp):
        if release[:2] >= NTP_MOVED:
            system["ntp"] = {"server": _exchange(runs.ntp, change.ntp)}
        else:
            service["ntp"] = _exchange_in_vrfs(trees["ntp"], change.ntp)
    if change.syslog is not None and set(change.syslog) != set(runs.syslog):
        if release[:2] >= SYSLOG_MOVED:
            entry = {"vrf": MANAGEMENT}
            system["syslog"] = {"server": _exchange(runs.syslog, change.syslog, entry)}
        else:
            service["syslog"] = _exchange_in_vrfs(trees["syslog"], change.syslog)
    aaa: Tree = {}
    if change.tacacs is not None and (change.tacacs != runs.tacacs or change.tacacs_key):
        aaa["tacacs"] = _encode_tacacs(change, _get(trees["aaa"], "tacacs"), release)
    if change.logins is not None and change.logins != runs.logins:
        order = _get(trees["aaa"], "authentication-order")
        ranks = {str(10 * rank): name for rank, name in enumerate(change.logins, 1)}
        aaa["authentication-order"] = dict.fromkeys(order) | ranks
    if aaa:
        system["aaa"] = aaa
    return {name: tree for name, tree in (("service", service), ("system", system)) if tree}


def _encode_tacacs(change: ServiceChange, shown: Tree, release: tuple[int, ...]) -> Tree:
    servers: Tree = dict.fromkeys(_get(shown, "server"))
    secret = {"secret": change.tacacs_key.reveal()} if change.tacacs_key else {}
    for rank, host in enumerate(change.tacacs or (), 1):
        if release[:2] >= TACACS_MOVED:
            servers[host] = {"priority": rank, **secret}
        else:
            servers[str(rank)] = {"host": host, **secret}
    tree: Tree = {"server": servers}
    if change.tacacs:
        tree["vrf"] = MANAGEMENT
    if release[:2] < TACACS_MOVED:
        tree["enable"] = "on" if change.tacacs else "off"
    return tree


def _exchange(old: Sequence[str], new: Sequence[str], entry: Tree | None = None) -> Tree:
    gone: Tree = dict.fromkeys(name for name in old if name not in new)
    return gone | {name: dict(entry or {}) for name in new if name not in old}


def _exchange_in_vrfs(tree: Tree, new: Sequence[str]) -> Tree:
    """Return the merge of servers, in the VRF that has some already, else in the management's."""
    held = {vrf: tuple(_get(entry, "server")) for vrf, entry in tree.items()}
    chosen = next((vrf for vrf, servers in held.items() if servers), MANAGEMENT)
    changes = {
        vrf: {"server": _exchange(servers, new if vrf == chosen else ())}
        for vrf, servers in held.items()
        if servers
    }
    return changes or {chosen: {"server": _exchange((), new)}}


def _list_servers(tree: Tree, *, in_vrfs: bool) -> tuple[str, ...]:
    entries = list(tree.values()) if in_vrfs else [tree]
    names = [name for entry in entries for name in _get(entry, "server")]
    return tuple(sorted(names)[:SERVERS_MAX])


def _rank(key: str, entry: Tree) -> tuple[int, str]:
    return (_number(key) if "host" in entry else _number(entry.get("priority")), key)


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 10**6


def _spell_login(value: Any) -> str:
    return value[:20] if isinstance(value, str) else "?"


def _is_tree(value: Any) -> bool:
    return isinstance(value, dict)


def _get(tree: Any, name: str) -> Tree:
    inner = tree.get(name) if isinstance(tree, dict) else None
    return {str(k): v for k, v in inner.items()} if isinstance(inner, dict) else {}
