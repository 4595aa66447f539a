"""The route that takes racked nodes in: BMCs are found, matched with the list, and stored.

The list brings factory passwords. They go sealed into the vault before the request is recorded, so
that its row only names them; a later approval needs no list.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from provisioner.adapters.redfish.discovery import (
    Network,
    Probe,
    discover_services,
    parse_network,
    probe_all,
    scan,
)
from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection
from provisioner.api.operations import OperationState, OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import OPERATORS, Effect, Route
from provisioner.execution.observe.discover import Found as Identified
from provisioner.execution.observe.intake import Secrets, Taken, find_nodes, take_in
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.model.switch import LoginCheck
from provisioner.planning.intake import expected_text
from provisioner.planning.intake.pairing import Assembly, foresee_intake, name_causes
from provisioner.planning.lifecycle.operator_requests import take_ports
from provisioner.ports import BmcTransport, Credentials, Secret

TAG = "intake"
SEALED = "intake"  # prefix of the vault's names for lists that wait
BODY_MAX = 32 * 1024 * 1024  # bytes; a list of 65,536 nodes with ten cards each is some 25 MB
BMCS_MAX = 100_000
NETWORKS_MAX = 64


class IntakeList(Record):
    """The body of an intake: the expected-hardware list, and the addresses and networks of BMCs."""

    expected: str = Field(
        min_length=1,
        max_length=BODY_MAX,
        repr=False,
        description="The expected-hardware list as YAML or JSON, with its passwords in it.",
    )
    bmc: tuple[str, ...] = Field((), max_length=BMCS_MAX, description="URLs of further BMCs.")
    networks: tuple[str, ...] = Field(
        (), max_length=NETWORKS_MAX, description="Networks whose addresses are probed: 10.0.0.0/24."
    )
    port: int = Field(443, ge=1, le=65535, description="Port that is probed in networks.")
    ssdp: bool = Field(default=False, description="Search by multicast, too.")
    take: tuple[str, ...] = Field(
        (),
        max_length=10_000,
        description="Nodes whose ports may be moved out of the network they are in now.",
    )


async def ask_intake(ask: Ask) -> Reply:
    return await submit_list(ask, ask.body)


async def submit_list(ask: Ask, body: IntakeList) -> Reply:
    """Ask for the intake of a list. Raises Refused for one that cannot be used."""
    if ask.parts.vault is None or ask.parts.transport is None:
        raise build_refusal(409, "intake", "This process reaches no BMC", "Ask the daemon.")
    try:
        expected = expected_text.parse("expected", body.expected)
        read_secrets(expected)
        networks = [parse_network(text) for text in body.networks]
        for url in body.bmc:
            check_url(url)
    except InputError as error:
        detail = f"{error.where}: {error.problem}"
        raise build_refusal(
            400, "expected", "The list cannot be used", error.remedy, detail
        ) from None
    arguments: dict[str, Any] = body.model_dump(mode="json", exclude={"expected"})
    arguments |= {"site": expected.site, "nodes": len(expected.nodes)}
    if ask.dry_run:
        return await _forecast(ask, body, expected, networks)
    arguments["sealed"] = f"{SEALED}/{uuid.uuid4().hex}"
    await ask.parts.vault.put(arguments["sealed"], "list", Secret(body.expected))
    return await ask.parts.works.submit_change(
        ask, ChangeKind.NODE_INTAKE, expected.site, "", arguments
    )


async def _forecast(
    ask: Ask, body: IntakeList, expected: Expected, networks: Sequence[Network]
) -> Reply:
    """Return the nodes that would be taken in: addresses are probed, no password is changed."""
    found = await _find(ask.parts, expected, body, networks, vault=None)
    listed = {n.name for n in expected.nodes}
    known = sorted({n.id for n in await ask.parts.store.nodes.list()} & listed)
    seen = foresee_intake(expected, found.assembly, found.silent, known)
    nodes = "1 node" if len(seen.ready) == 1 else f"{len(seen.ready)} nodes"
    lines = [f"{nodes} would be taken in, {len(known)} known before."]
    lines += [
        f"{name}: its ports are moved into the maintenance network from the network they are in, "
        "which cuts off its user there; then its disks are erased."
        for name in body.take
    ]
    result = {
        "lines": lines,
        "taken_in": list(seen.ready),
        "known": known,
        "effects": seen.ready,
        "blockers": [_dump(b) for b in seen.refused],
        "strangers": [_dump(b) for b in seen.strangers],
    }
    shown = OperationView(
        id="",
        kind=ChangeKind.NODE_INTAKE.value,
        subject=expected.site,
        state=OperationState.DRY_RUN,
        opened_at=ask.now,
        result=result,
    )
    return Reply(shown)


async def change_intake(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out; each node is stored with its logins, and the daemon continues with it."""
    arguments = asked.arguments
    if asked.kind is ChangeKind.NODE_TAKE:
        against = await _take(parts, [asked.subject], asked.asked_by)
        return (
            build_failure(*against)
            if against
            else Outcome(RequestState.DONE, {"node": asked.subject})
        )
    assert parts.vault is not None
    sealed = await parts.vault.current(str(arguments["sealed"]))
    if sealed is None:
        return build_objection(asked.subject, "its list is gone", "Send the list again.")
    expected = expected_text.parse("expected", sealed[1].reveal())
    fields = {k: arguments[k] for k in ("bmc", "networks", "port", "ssdp", "take")}
    body = IntakeList.model_validate({"expected": "sealed", **fields}, strict=False)
    networks = [parse_network(text) for text in body.networks]
    found = await _find(parts, expected, body, networks, vault=parts.vault)
    taken = await take_in(
        parts.store,
        parts.vault,
        expected,
        read_secrets(expected),
        found.assembly,
        found.identities,
        parts.clock.now(),
    )
    refused = await _take(parts, body.take, asked.asked_by)
    renewed, void = await _renew_logins(parts, expected, parts.vault)
    await parts.vault.remove(str(arguments["sealed"]))
    result = _result(expected, taken, (*found.silent, *refused, *void))
    if renewed:
        result["renewed"] = renewed
    return Outcome(RequestState.DONE, result)


async def _renew_logins(
    parts: ApiParts, expected: Expected, vault: Credentials
) -> tuple[list[str], list[Blocker]]:
    """Store the list's login of each known switch that refuses the stored one and takes this one.

    Returns the switches with a new login, and why others that refuse theirs have none.
    """
    listed = read_secrets(expected).switches
    renewed = []
    void = []
    if parts.port_reader is None:
        return [], []
    for name, login in listed.items():
        switch = await parts.store.nodes.get(name)
        stored = await vault.current(f"{name}/api")
        if switch is None or switch.kind is not NodeKind.SWITCH or stored is None:
            continue
        if (stored[0], stored[1].reveal()) == (login[0], login[1].reveal()):
            continue
        answer = await parts.port_reader.try_login(switch)
        stands = _is_accepted(answer)
        if stands:
            continue  # it works, as after the daemon changed it
        if stands is None:
            void.append(_leave_unsaid(name, answer))
        elif _is_accepted(await parts.port_reader.try_login(switch, login)):
            await vault.put(f"{name}/api", *login)
            renewed.append(name)
        else:
            detail = "it refuses the stored login and the one on the list"
            remedy = "Correct its password on the list, and run the intake again."
            reason = Reason.LOGIN_REFUSED
            void.append(Blocker(reason=reason, subject=name, detail=detail, unblock=remedy))
    return renewed, void


def _leave_unsaid(name: str, answer: LoginCheck | Blocker) -> Blocker:
    """Return that a switch did not say whether its stored login works, which is then kept."""
    if isinstance(answer, LoginCheck):
        reason = Reason.LOGIN_REFUSED
        said = answer.detail or answer.status
    else:
        reason = answer.reason
        said = answer.detail
    detail = f"whether its stored login works is not known ({said}): the list's is not stored"
    remedy = "Let it answer, and run the intake again."
    return Blocker(reason=reason, subject=name, detail=detail, unblock=remedy)


def _is_accepted(answer: LoginCheck | Blocker) -> bool | None:
    """Return whether a login is accepted; None where the switch did not say."""
    if isinstance(answer, Blocker):
        return False if answer.reason is Reason.LOGIN_REFUSED else None
    return {"accepted": True, "refused": False}.get(answer.status)


class _Search(NamedTuple):
    """The nodes that were put together, who answered, and the addresses that did not."""

    assembly: Assembly
    identities: tuple[Identified, ...]
    silent: tuple[Blocker, ...]


async def _find(
    parts: ApiParts,
    expected: Expected,
    body: IntakeList,
    networks: Sequence[Network],
    *,
    vault: Credentials | None,
) -> _Search:
    """Find and pair BMCs. Without a `vault` no password is changed."""
    assert parts.transport is not None
    gaps: list[Gap] = []
    urls = [*body.bmc, *(n.bmc.url for n in expected.nodes if n.bmc.url)]
    switches = {urlsplit(n.address).hostname for n in expected.nodes if n.kind is NodeKind.SWITCH}
    probes = [
        p
        for p in await _probes(parts.transport, urls, networks, body, gaps)
        if p.url in urls or urlsplit(p.url).hostname not in switches
    ]
    secrets = read_secrets(expected)
    now = parts.clock.now()
    assembly, identities, silent = await find_nodes(
        parts.transport, parts.store, vault, expected, secrets, probes, now
    )
    return _Search(assembly, identities, (*silent, *map(describe_unanswered, gaps)))


async def _probes(
    transport: BmcTransport,
    urls: Sequence[str],
    networks: Sequence[Network],
    body: IntakeList,
    gaps: list[Gap],
) -> list[Probe]:
    """Return every address that answers: named ones, those of networks, and by multicast."""
    services = {p.url: p for p in await probe_all(transport, urls, gap_seen=gaps.append)}
    for network in networks:
        for probe in await scan(transport, network, body.port, lambda _done, _all: None):
            services.setdefault(probe.url, probe)
    if body.ssdp:
        for probe in await probe_all(transport, await discover_services()):
            services.setdefault(probe.url, probe)
    return list(services.values())


def describe_unanswered(gap: Gap) -> Blocker:
    """Return the blocker for a named address without a Redfish service."""
    unblock = f"Check address, cable and power; look at it with `provisioner inspect {gap.source}`."
    return Blocker(reason=gap.reason, subject=gap.source, detail=gap.detail, unblock=unblock)


def _result(expected: Expected, taken: Taken, silent: Sequence[Blocker]) -> dict[str, Any]:
    blockers = name_causes(expected, taken.blockers, tuple(silent))
    listed = {n.name for n in expected.nodes}
    return {
        "taken_in": [n.id for n in taken.new],
        "known": [name for name in taken.known if name in listed],
        "blockers": [_dump(b) for b in blockers if b.reason is not Reason.NOT_EXPECTED],
        "strangers": [_dump(b) for b in blockers if b.reason is Reason.NOT_EXPECTED],
    }


def _dump(blocker: Blocker) -> dict[str, Any]:
    return blocker.model_dump(mode="json")


def read_secrets(expected: Expected) -> Secrets:
    """Return the list's passwords. Raises InputError for one that is not in the list itself."""
    factory = {}
    switches = {}
    for vendor, login in expected.factory_credentials.items():
        if not login.password:
            raise _absent(f"factory_credentials.{vendor}")
        factory[vendor] = (login.username, Secret(login.password))
    for node in (n for n in expected.nodes if n.username):
        if not node.password:
            raise _absent(node.name)
        switches[node.name] = (node.username, Secret(node.password))
    return Secrets(factory=factory, switches=switches)


def _absent(where: str) -> InputError:
    remedy = "Send the passwords themselves: the daemon reads neither your environment nor files."
    return InputError("expected", where, "it has no password", remedy)


def check_url(url: str) -> None:
    """Raise InputError unless it is the origin of a Redfish service, without credentials."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise InputError("bmc", url[:80], "not an http(s) address", "Write https://HOST:PORT.")
    if parts.username or parts.password:
        remedy = "Factory credentials stand on the expected-hardware list."
        raise InputError("bmc", parts.hostname or "", "it must not hold credentials", remedy)


async def ask_take(ask: Ask) -> Reply:
    """Ask that the daemon may move a node's ports."""
    node = await ask.read_node()
    return await ask.parts.works.submit_change(ask, ChangeKind.NODE_TAKE, node.id, "", {})


async def foresee_take(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effects on a node whose ports are given to the daemon."""
    node = await parts.store.nodes.get(asked.subject)
    changed = "there is no such node" if node is None else take_ports(node, parts.clock.now())
    if isinstance(changed, str):
        return Forecast(blockers=build_objection(asked.subject, changed, "Leave it.").blockers)
    line = (
        f"{asked.subject}: its ports are moved into the maintenance network from the network they "
        "are in, which cuts off its user there; then its disks are erased."
    )
    return Forecast((line,))


async def _take(parts: ApiParts, names: Sequence[str], by: str) -> tuple[Blocker, ...]:
    """Give nodes' ports to the daemon, all of those named or none; return the blockers."""
    now = parts.clock.now()
    taken = list[Node]()
    refused = list[Blocker]()
    for name in dict.fromkeys(names):
        node = await parts.store.nodes.get(name)
        changed = "no node of this name was taken in" if node is None else take_ports(node, now)
        if isinstance(changed, str):
            refused += build_objection(name, changed, "Leave it out of --take.").blockers
        else:
            taken.append(changed)
    if taken and not refused:
        event = RequestCarriedOut(request="take", by=by)
        await parts.store.nodes.save_requested(taken, event, now)
    return tuple(refused)


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "POST",
        "/intake",
        "take_nodes_in",
        TAG,
        "Take racked nodes in: they are stored, and the daemon continues with them.",
        OPERATORS,
        ask_intake,
        _ASKED,
        effect=Effect.LASTING,
        body=IntakeList,
        body_max=BODY_MAX,
        example={"expected": "site: x\nnodes: []\n"},
        site=True,
    ),
    Route(
        "POST",
        "/nodes/{node}/take",
        "take_node_ports",
        TAG,
        "Let the daemon move the ports of a newly found node out of their network, and erase it.",
        OPERATORS,
        ask_take,
        _ASKED,
        effect=Effect.LASTING,
        refusals={409: "Its ports are the daemon's already."},
    ),
)
