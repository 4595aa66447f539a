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

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from provisioner.adapters.ssh import SshShell
from provisioner.integrations.cumulus import nvue_calls
from provisioner.integrations.cumulus.nvue_calls import PREFIX, Ask, build_merge
from provisioner.integrations.cumulus.revisions import (
    NvueLine,
    Revisions,
    encode_body,
    read_release,
)
from provisioner.model.outcome import Reason
from provisioner.model.switch import PortCounters, SwitchServices
from provisioner.ports import LoginRefused, Malformed, Remote, Secret, Unreachable
from provisioner.ports.switch import ServiceChange, SwitchRefused
from provisioner.runtime.late_module import LateModule

# ------------------------------------------------------------------------------
# Changes a switch's expired password over SSH: the dialogue that sshd forces on the first login.
#
# Cumulus Linux ships with a password that is expired, and its REST API answers 403 until it was
# changed; no request of the API changes it. sshd then runs passwd(1) in the session, on a terminal.
# The host key is believed when it is first seen, and pinned under the switch's name. Nothing that
# either side said is repeated in an error: it may hold a password.


if TYPE_CHECKING:
    import asyncssh
else:  # loaded by the first connection
    asyncssh = LateModule("asyncssh")

DIALOGUE_S = 60.0  # three questions; a loaded switch hashes a password for a second
SAID_MAX = 16_384  # characters of a dialogue; a banner and four lines are below 2,000
PORT = 22

_CURRENT = re.compile(r"(?:current|old)[^\n]*password: *$", re.IGNORECASE)
_NEW = re.compile(r"(?:retype |re-enter )?new[^\n]*password: *$", re.IGNORECASE)
_DONE = re.compile(r"password (?:updated|changed) successfully|all authentication tokens updated")
_NO = (
    "BAD PASSWORD",
    "manipulation error",
    "must choose",
    "unchanged",
    "do not match",
    "too short",
)


class SshPasswords:
    """`SwitchPasswords` for switches whose first login is over SSH.

    `known_hosts`: where keys are pinned; the daemon's own file.
    """

    def __init__(self, known_hosts: Path, port: int = PORT) -> None:
        self._known_hosts = known_hosts
        self._port = port

    async def change(
        self, switch: str, address: str, username: str, old: Secret, new: Secret
    ) -> None:
        """Answer the dialogue. Raises PortError: also if it ended in any other way than well."""
        remote = Remote(username, None, self._known_hosts, learn=True, port=self._port)
        connection = await _Login(remote, old).open(switch, address)
        try:
            async with asyncio.timeout(DIALOGUE_S):
                await _answered(connection, old, new)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            detail = f"ssh {address}: the dialogue broke off ({type(error).__name__})"
            raise Unreachable(detail, maybe_executed=True) from None
        finally:
            connection.abort()


class _Login(SshShell):
    """As the daemon's shell, which pins the host's key, but with a password."""

    def __init__(self, remote: Remote, secret: Secret) -> None:
        super().__init__(remote, 1)
        self._secret = secret

    async def open(self, host: str, address: str) -> asyncssh.SSHClientConnection:
        """One connection; whoever asks ends it."""
        return await self._connect(host, address)

    def _options(
        self, host: str, known: asyncssh.SSHKnownHosts
    ) -> asyncssh.SSHClientConnectionOptions:
        return asyncssh.SSHClientConnectionOptions(
            options=super()._options(host, known),
            client_keys=None,
            agent_path=None,
            password=self._secret.reveal(),
            preferred_auth="password",
        )


async def _answered(connection: asyncssh.SSHClientConnection, old: Secret, new: Secret) -> None:
    process = await connection.create_process(term_type="dumb", encoding="utf-8", errors="replace")
    async with process:
        answers: Sequence[Secret] = (old, new, new)
        output = ""
        answered = 0
        while data := await process.stdout.read(4096):
            output = (output + data)[-SAID_MAX:]
            if any(refusal in output for refusal in _NO):
                raise LoginRefused("passwd does not take the new password")
            if _DONE.search(output):
                return
            question = _CURRENT if answered == 0 else _NEW
            if question.search(output):
                if answered == len(answers):
                    raise LoginRefused("passwd asks again: it does not take the new password")
                # passwd that has ended meanwhile is read to its end: its words say why
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(answers[answered].reveal() + "\n")
                output = ""
                answered += 1
    if answered < len(answers):
        raise Malformed(f"no such dialogue: it ended after {answered} answers")
    raise Malformed("passwd does not say that it changed the password")


# ------------------------------------------------------------------------------
# How a Cumulus switch is drained, and how its sessions, EVPN, counters and firmware read.
#
# Draining is BGP's: neighbours are told to go around (graceful shutdown, RFC 8326), and from 5.13
# on the maintenance unit also gives every protocol's routes their lowest preference. Sources:
# Cumulus Linux guide, "Optional BGP Configuration" and "Maintenance Mode". Shapes of operational
# answers are read leniently in their names and strictly in their values: what cannot be read is no
# good state.


BGP_PATH = f"{PREFIX}/router/bgp?rev=applied"
SESSIONS_PATH = f"{PREFIX}/vrf/default/router/bgp/neighbor?rev=operational"
VNIS_PATH = f"{PREFIX}/evpn/vni?rev=operational"
HEALTH_PATH = f"{PREFIX}/system/health"
FIRMWARE_PATH = f"{PREFIX}/platform/firmware?rev=operational"
FIRST_WITH_UNIT = (5, 13)  # "nv set maintenance unit"; before, there is only graceful shutdown
COUNT_MAX = 2**63
PORTS_MAX = 512  # of a switch: 64 cages, eight ways each
FRONT_PANEL = "swp"  # the beginning of a port's name
# image -> ASIC firmware, where both are published (docs/sources/versions.md#cumulus-asic)
ASIC_FIRMWARE = {"5.10.1": "34.2014.1136"}


def change_drain(revision: str, release: tuple[int, ...], *, on: bool) -> Ask:
    """Into a revision: neighbours go around this switch, or come back."""
    body: dict[str, Any] = {"router": {"bgp": {"graceful-shutdown": "on" if on else "off"}}}
    if release[:2] >= FIRST_WITH_UNIT:
        mode = "enabled" if on else "disabled"
        body["maintenance"] = {"unit": {"all-protocols": {"mode": mode}}}
    body = encode_body(body, release)
    return Ask("PATCH", f"{PREFIX}/?rev={quote(revision, safe='')}", body)


def counters_path(interface: str) -> str:
    """Counters of one port."""
    return f"{PREFIX}/interface/{quote(interface, safe='')}/link/stats?rev=operational"


def read_drained(answer: Any) -> bool | None:
    """Whether graceful shutdown is applied."""
    if not isinstance(answer, dict):
        return None
    return str(answer.get("graceful-shutdown", "off")).lower() in ("on", "enabled", "true")


def read_ports(answer: Any) -> tuple[str, ...] | None:
    """Front-panel ports with carrier, of all interfaces' operational state."""
    if not isinstance(answer, dict) or len(answer) > 8 * PORTS_MAX:
        return None
    found = []
    for name, entry in answer.items():
        if not isinstance(entry, dict):
            return None
        if not name.startswith(FRONT_PANEL):
            continue
        link = entry.get("link")
        state = link.get("state") if isinstance(link, dict) else None
        if state == "up" or (isinstance(state, dict) and "up" in state):
            found.append(name)
    return tuple(sorted(found)) if len(found) <= PORTS_MAX else None


def read_bytes(answer: Any) -> int | None:
    """Bytes that a port has carried, both ways."""
    if not isinstance(answer, dict):
        return None
    total = 0
    for name in ("in-bytes", "out-bytes"):
        value = answer.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return None
        total += value
    return total


def read_counters(answer: Any) -> PortCounters:
    """Return the counters of a port; None for each that is no count."""
    listed = answer if isinstance(answer, dict) else {}
    return PortCounters(
        carried_bytes=read_bytes(answer),
        in_errors=_read_count(listed.get("in-errors")),
        carrier_changes=_read_count(listed.get("carrier-transitions")),
    )


def _read_count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_MAX
    return value if good else None


def read_sessions(answer: Any) -> frozenset[str] | None:
    """Neighbours whose session is established."""
    if not isinstance(answer, dict):
        return None
    states = {n: e.get("state") if isinstance(e, dict) else None for n, e in answer.items()}
    if not all(isinstance(s, str) for s in states.values()):
        return None
    return frozenset(n for n, s in states.items() if str(s).lower() == "established")


def read_vnis(answer: Any) -> frozenset[str] | None:
    """VNIs that EVPN knows."""
    return frozenset(map(str, answer)) if isinstance(answer, dict) else None


def read_health(answer: Any) -> str | None:
    """ "OK", or what is wrong."""
    if not isinstance(answer, dict) or not isinstance(answer.get("status"), str):
        return None
    issues = answer.get("issues")
    names = ", ".join(sorted(issues)[:5]) if isinstance(issues, dict) else ""
    return str(answer["status"]) + (f": {names}"[:200] if names else "")


def read_asic(answer: Any) -> str | None:
    """Version of the ASIC's firmware; None if the switch does not say."""
    entry = answer.get("ASIC") if isinstance(answer, dict) else None
    value = entry.get("actual-firmware") if isinstance(entry, dict) else None
    return value if isinstance(value, str) and len(value) <= 60 else None


def wrong_firmware(version: str, asic: str | None) -> str:
    """What speaks against the ASIC's firmware under this image; "" if nothing published does."""
    wanted = ASIC_FIRMWARE.get(".".join(version.split(".")[:3]))
    if wanted is None or (asic or "").replace("_", ".") == wanted:
        return ""
    return f"the ASIC runs {asic or 'an unreadable version'}, {version} brings {wanted}"


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
