"""How Cumulus Linux speaks: NVUE request bodies, and readings of its answers.

Rule: only `rev=operational` is the state in force. Without it NVUE answers the applied
configuration, which is an intention. Sources: NVIDIA's Cumulus Linux guide, chapters "NVUE API" and
"Upgrading", and its own NVUE clients. Everything a switch answers is hostile until read here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from provisioner.integrations.cumulus import port_filter
from provisioner.integrations.cumulus import port_filter as host_filter
from provisioner.model.switch import Images, Move, PortChange
from provisioner.ports.wire import UNREADABLE

PREFIX = "/nvue_v1"
IMAGES_PATH = f"{PREFIX}/system/image"
JOBS_PATH = f"{PREFIX}/action"
VRFS_PATH = f"{PREFIX}/vrf?rev=operational"
INTERFACES_PATH = f"{PREFIX}/interface?rev=operational"
REVISIONS_PATH = f"{PREFIX}/revision"

APPLIED = frozenset({"applied", "applied_and_saved"})
# NVUE applies no revision that equals what is applied, and says so in the revision's issue, under
# whatever state it is left (NVIDIA/infra-controller pull requests 5772 and 5790)
NO_DIFFERENCE = "no config diff"
DENY = {"provisioner_deny4": "ipv4", "provisioner_deny6": "ipv6"}  # filters: name -> family
# states of a revision that is still on its way; every other one is an end without effect
UNDER_WAY = frozenset(
    {"pending", "apply", "verifying", "verified", "ready", "preparing", "reloading", "saving"}
)
REVISIONS_MAX = 20_000  # one for each change since it was installed; listed with a line each
DESCRIPTION_MAX = 1024  # characters that are looked at; NVUE takes 256
ROUTES_MAX = 200_000  # of one VRF; a leaf's tables hold fewer


@dataclass(frozen=True)
class Ask:
    """One request, before the floor above makes a call of it."""

    method: str
    path: str
    body: Any = None


@dataclass(frozen=True)
class RevisionState:
    """How a revision is doing. `issue` is the switch's own words."""

    state: str
    issue: str

    @property
    def applied(self) -> bool:
        """Return whether the switch intends it; it may not be in force yet."""
        issues = self.issue.lower().split("; ")
        return self.state in APPLIED or all(NO_DIFFERENCE in issue for issue in issues)

    @property
    def under_way(self) -> bool:
        """It may still be applied."""
        return self.state in UNDER_WAY and not self.applied

    @property
    def sent(self) -> bool:
        """Its applying was asked for and has not ended: it goes on by itself."""
        return self.under_way and self.state != "pending"


@dataclass(frozen=True)
class Job:
    """State of an action. `detail` is the switch's own words."""

    done: bool
    ok: bool
    detail: str


# --- requests


def new_revision() -> Ask:
    """An empty revision; one whose number got lost changes nothing and is left alone."""
    return Ask("POST", f"{PREFIX}/revision")


def move_ports(revision: str, change: PortChange) -> Ask:
    """Ports into VRFs, each VRF made sure to exist. A merge: nothing else is touched.

    The address is written along: moving an interface between VRFs drops and re-adds it. Null takes
    a filter off ("NVUE API": the PATCH method unsets). A move that denies only sets the filter: the
    port may have been moved by others since it was read.
    """
    moves = change.moves
    interfaces: dict[str, Any] = {}
    for move in moves:
        if move.denied:
            both: dict[str, Any] = {"inbound": {}, "outbound": {}}
            interfaces[move.interface] = {"acl": dict.fromkeys(DENY, both)}
            continue
        entry: dict[str, Any] = {}
        if move.vrf:
            entry["ip"] = {"vrf": move.vrf}
            if move.address:
                entry["ip"]["address"] = {move.address: {}}
        if move.description:  # "nv set interface swp1 description"
            entry["description"] = move.description
        bound = _bind_filters(move, change)
        interfaces[move.interface] = entry | ({"acl": bound} if bound else {})
    body: dict[str, Any] = {"interface": interfaces}
    if not all(move.stays for move in moves):
        body["vrf"] = {move.vrf: {} for move in moves if not move.stays}
    filters: dict[str, Any] = {}
    if any(move.denied for move in moves):
        filters = {name: _deny_all(family) for name, family in DENY.items()}
    if any(move.apart for move in moves):
        rules = host_filter.encode_missing_rules(
            change.held, change.host_filter or {}, with_doors=change.with_doors
        )
        filters[host_filter.NAME] = {"type": host_filter.FAMILY, "rule": rules}
    filters |= {m.guard: port_filter.encode_filter(m.rules) for m in moves if m.guard}
    if filters:
        body["acl"] = filters
    return Ask("PATCH", f"{PREFIX}/?rev={quote(revision, safe='')}", body)


def _bind_filters(move: Move, change: PortChange) -> dict[str, Any]:
    """Return the merge of a port's filters; null takes one off."""
    bound: dict[str, Any] = {}
    if move.vrf and move.interface in change.denied:
        bound = dict.fromkeys(DENY)
    if move.apart:
        bound[host_filter.NAME] = {"inbound": {}}
    elif move.apart is False and move.interface in change.apart:
        bound[host_filter.NAME] = None
    if move.vrf:
        bound |= dict.fromkeys(change.guards.get(move.interface, frozenset()) - {move.guard})
    if move.guard:
        bound[move.guard] = {port_filter.WAY: {}}
    return bound


def build_merge(revision: str, body: Mapping[str, Any]) -> Ask:
    """A merge of settings; null takes one away. Nothing else is touched."""
    return Ask("PATCH", f"{PREFIX}/?rev={quote(revision, safe='')}", dict(body))


def object_path(path: tuple[str, ...], revision: str) -> str:
    """One object of a tree."""
    steps = "/".join(quote(step, safe="") for step in path)
    return f"{PREFIX}/{steps}?rev={quote(revision, safe='')}"


def set_password(revision: str, username: str, password: str) -> Ask:
    """A new password of one user. source: NVUE reference, `nv set system aaa user <user>
    password`; NVUE keeps its hash alone, and shows an asterisk in its place.
    """
    body = {"system": {"aaa": {"user": {username: {"password": password}}}}}
    return Ask("PATCH", f"{PREFIX}/?rev={quote(revision, safe='')}", body)


def apply(revision: str) -> Ask:
    """Begin to apply; the questions it would ask a person are answered with yes."""
    body = {"state": "apply", "auto-prompt": {"ays": "ays_yes"}}
    return Ask("PATCH", revision_path(revision), body)


def save() -> Ask:
    """Return the request after which the applied configuration survives a reboot."""
    body = {"state": "save", "auto-prompt": {"ays": "ays_yes"}}
    return Ask("PATCH", f"{PREFIX}/revision/applied", body)


def revision_path(revision: str) -> str:
    """Where a revision's state is; some releases' names contain slashes."""
    return f"{PREFIX}/revision/{quote(revision, safe='')}"


def tree_path(revision: str) -> str:
    """The whole configuration of "applied", "startup" or a revision."""
    return f"{PREFIX}/?rev={quote(revision, safe='')}"


def interface_path(interface: str, revision: str = "operational") -> str:
    """One port, as it is or as a revision would have it."""
    return f"{PREFIX}/interface/{quote(interface, safe='')}?rev={quote(revision, safe='')}"


def interfaces_path(revision: str = "operational") -> str:
    """All ports, as they are or as a revision would have them."""
    return f"{PREFIX}/interface?rev={quote(revision, safe='')}"


def acls_path(revision: str = "operational") -> str:
    """All filters, as they are or as a revision would have them."""
    return f"{PREFIX}/acl?rev={quote(revision, safe='')}"


def routes_path(vrf: str) -> str:
    """The routes of one VRF."""
    return f"{PREFIX}/vrf/{quote(vrf, safe='')}/router/rib/ipv4/route?rev=operational"


def _deny_all(family: str) -> dict[str, Any]:
    """Both directions and families, as NVIDIA's own controller quarantines a host's port."""
    every = "0.0.0.0/0" if family == "ipv4" else "::/0"
    anybody = {"ip": {"source-ip": every, "dest-ip": every}}
    return {"type": family, "rule": {"10": {"action": {"deny": {}}, "match": anybody}}}


def fetch_image(url: str) -> Ask:
    """`nv action fetch system image <url>`: into /var/images."""
    return _action("/system/image", "@fetch", {"remote-url": url})


def install_image(file_name: str) -> Ask:
    """`nv action install system image files <file>`: into the partition that does not run."""
    return _action(f"/system/image/files/{quote(file_name, safe='')}", "@install", {})


def boot_next() -> Ask:
    """`nv action boot-next system image other`."""
    return _action("/system/image", "@boot-next", {"partition": "other"})


def reboot() -> Ask:
    """`nv action reboot system no-confirm`: it forwards nothing until it is back."""
    return _action("/system", "@reboot", {"no-confirm": True})


def _action(path: str, name: str, parameters: Mapping[str, Any]) -> Ask:
    return Ask("POST", PREFIX + path, {name: {"state": "start", "parameters": dict(parameters)}})


# --- readings of answers; None or a sentence where one cannot be read


def read_revision_id(answer: Any) -> str | None:
    """The name of a new revision: the one key of the answer."""
    if not isinstance(answer, dict) or len(answer) != 1:
        return None
    name = next(iter(answer))
    return name if isinstance(name, str) and 0 < len(name) <= 200 else None


def read_revision(answer: Any) -> RevisionState | None:
    """State and issue of a revision."""
    if not isinstance(answer, dict) or not isinstance(answer.get("state"), str):
        return None
    transition = answer.get("transition")
    issues = transition.get("issue") if isinstance(transition, dict) else None
    if isinstance(issues, dict):
        listed = list(issues.values())[:5]
    else:  # a list, one text, or none
        listed = issues[:5] if isinstance(issues, list) else [issues] if issues else []
    texts = [str(i.get("message", i) if isinstance(i, dict) else i)[:200] for i in listed]
    return RevisionState(answer["state"], "; ".join(texts))


def read_revisions(answer: Any) -> dict[str, RevisionState] | None:
    """Every revision with its state; None if one of them cannot be read."""
    if not isinstance(answer, dict) or len(answer) > REVISIONS_MAX:
        return None
    states = {name: read_revision(entry) for name, entry in answer.items()}
    if not all(isinstance(name, str) and state for name, state in states.items()):
        return None
    return {name: state for name, state in states.items() if state is not None}


def read_sent(answer: Any) -> tuple[str, ...] | None:
    """Return the revisions that are being applied now; None if the list cannot be read."""
    listed = read_revisions(answer)
    if listed is None:
        return None
    return tuple(sorted(name for name, state in listed.items() if state.sent))


def read_vrf(interface: Any) -> str | None:
    """VRF of one interface's operational state; "" if it names none; None if it is unreadable."""
    if not isinstance(interface, dict):
        return None
    ip = interface.get("ip", {})
    if not isinstance(ip, dict):
        return None
    vrf = ip.get("vrf", "")
    return vrf if isinstance(vrf, str) and UNREADABLE not in vrf else None


def read_addresses(interface: Any) -> tuple[str, ...]:
    """Addresses of one interface, with their lengths; () if it shows none."""
    ip = interface.get("ip") if isinstance(interface, dict) else None
    address = ip.get("address") if isinstance(ip, dict) else None
    return tuple(str(a) for a in address)[:64] if isinstance(address, dict) else ()


def read_description(interface: Any) -> str:
    """Return the description of one interface; "" if it has none, "?" if it cannot be read."""
    text = interface.get("description", "") if isinstance(interface, dict) else "?"
    return text[:DESCRIPTION_MAX] if isinstance(text, str) else "?"


def read_denied(interface: Any) -> bool:
    """Whether one of our filters is on this port."""
    bound = interface.get("acl") if isinstance(interface, dict) else None
    return isinstance(bound, dict) and any(name in bound for name in DENY)


def read_apart(interface: Any) -> bool:
    """Return whether the filter between hosts is bound to this port, inbound."""
    bound = interface.get("acl") if isinstance(interface, dict) else None
    ways = bound.get(host_filter.NAME) if isinstance(bound, dict) else None
    return isinstance(ways, dict) and "inbound" in ways


def read_names(answer: Any) -> tuple[str, ...] | None:
    """Keys of a collection: VRFs."""
    if not isinstance(answer, dict) or not all(isinstance(k, str) for k in answer):
        return None
    return tuple(sorted(answer))


def read_routes(answer: Any) -> tuple[str, ...] | None:
    """Prefixes of a routing table, in one spelling; None if any of it is unreadable."""
    if not isinstance(answer, dict) or len(answer) > ROUTES_MAX:
        return None
    try:
        return tuple(str(ipaddress.ip_network(prefix, strict=False)) for prefix in answer)
    except ValueError:
        return None


def read_images(answer: Any) -> Images | str:
    """Image partitions, or a sentence why they cannot be read."""
    if not isinstance(answer, dict):
        return "the list of images is not an object"
    versions: dict[str, str] = {}
    for number in ("1", "2"):
        partition = answer.get(f"partition{number}")
        build = partition.get("build-id") if isinstance(partition, dict) else None
        if isinstance(build, str) and build:
            versions[number] = build
    current = str(answer.get("current", "")).removeprefix("partition")
    following = str(answer.get("next", "")).removeprefix("partition")
    if current not in versions:
        return f"the running image {current[:20]!r} has no build id"
    return Images(
        running=versions[current],
        next=versions.get(following, versions[current]),
        versions=tuple(dict.fromkeys(versions.values())),
    )


def read_job_id(answer: Any) -> str | None:
    """The id of an action that was started: a number or a string."""
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        return None
    name = str(answer)
    return name if name.isalnum() and len(name) <= 40 else None


def read_job(answer: Any) -> Job | None:
    """State of an action: start, running, action_success, action_error."""
    if not isinstance(answer, dict) or not isinstance(answer.get("state"), str):
        return None
    state = answer["state"]
    detail = str(answer.get("detail") or answer.get("status") or state)[:300]
    done = state not in ("start", "running")
    return Job(done=done, ok=state == "action_success", detail=detail)
