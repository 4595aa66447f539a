"""Accounts and event subscriptions of one BMC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from provisioner.adapters.redfish import messages
from provisioner.adapters.redfish.collect import list_power_supplies
from provisioner.adapters.redfish.eventing.events import Metric, read_document
from provisioner.adapters.redfish.messages import body_of, collect_messages, read_refusal
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, path_of, text, truth
from provisioner.adapters.redfish.parts import is_present, of_type, read_health
from provisioner.adapters.redfish.service import UNBLOCK, Service, raise_silence, raise_unread
from provisioner.adapters.redfish.walk import CHANGE_FIRST
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Call, Malformed, Reply, Secret, TooLarge, Unreachable

# ------------------------------------------------------------------------------
# The redundancy of a host's power supplies, looked at before one of them is written.
#
# A supply that takes new firmware gives no power for minutes: the others must be healthy
# (docs/sources/redfish.md#psu).


async def find_power_fault(service: Service) -> Blocker | None:
    """Return why no supply may be written now: one of them reports a fault, or not all can be read.

    None: neither. Raises `PortError` if the BMC does not answer.
    """
    walk = service.walk()
    chassis = of_type(await walk.read_linked(await walk.read_root(), "Chassis"), "Chassis")
    raise_silence(walk.gaps)
    gaps_before = len(walk.gaps)
    supplies = [one for one in await list_power_supplies(walk, chassis) if is_present(one[1])]
    faulty = [
        f"{slot} is {health}"
        for slot, supply in supplies
        if (health := read_health(supply.data)) not in (None, "OK")
    ]
    unread = [f"{gap.source}: {gap.detail}" for gap in walk.gaps[gaps_before:]]
    if faulty:
        detail = f"a power supply reports a fault: {', '.join(faulty[:8])}"
    elif unread or not supplies:
        detail = f"not all power supplies can be read: {', '.join(unread[:8]) or 'none is listed'}"
    else:
        return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject="host.psu",
        detail=detail,
        unblock="Restore the power supplies' redundancy, or have their BMC show it; then retry.",
    )


# ------------------------------------------------------------------------------
# Switches the LED that marks a chassis for people on site, with the property that a BMC offers.
#
# `LocationIndicatorActive` where it is a boolean (DSP0268: it replaces `IndicatorLED`), else
# `IndicatorLED`. Recorded trees have either of them on the system or on its chassis, and null
# where
# it means nothing (DGX: chassis of components); the property is read before it is written.


CHASSIS_MAX = 4  # of a system: a server has one or two


async def identify(service: Service, *, on: bool) -> Blocker | None:
    """Switch it, and read back that it is so; why it is not, else. Raises `PortError`."""
    refused: Blocker | None = None
    async for path, data in _bearers(service):
        for body in _bodies(data, on=on):
            if all(data.get(k) == v for k, v in body.items()):
                return None
            refused = await service.patch(path, body, "identify LED")
            if refused is None and is_shown(await service.peek(path), on=on):
                return None
    return refused or service.not_offered("host", "identify LED that can be switched")


def is_shown(data: Json, *, on: bool) -> bool:
    active = data.get("LocationIndicatorActive")
    if isinstance(active, bool):
        return active is on
    return (data.get("IndicatorLED") in ("Lit", "Blinking")) is on


def _bodies(data: Json, *, on: bool) -> list[dict[str, object]]:
    """Return the bodies to write, best first; none where the resource has no such property."""
    if isinstance(data.get("LocationIndicatorActive"), bool):
        return [{"LocationIndicatorActive": on}]
    if isinstance(data.get("IndicatorLED"), str):
        values = ("Blinking", "Lit") if on else ("Off",)
        return [{"IndicatorLED": v} for v in values]
    return []


async def _bearers(service: Service) -> AsyncIterator[tuple[str, Json]]:
    """The host's system, then its chassis."""
    system = await service.read_system()
    if system is None:
        return
    yield system.path, system.data
    chassis = at(system.data, "Links", "Chassis")
    for one in (chassis if isinstance(chassis, list) else [])[:CHASSIS_MAX]:
        path = path_of(as_object(one))
        if path:
            yield path, await service.get(path)


# ------------------------------------------------------------------------------
# Reads the metric reports of a BMC: HGX makes them on request only, and does not stream them.
#
# Only existing reports are read; report definitions are never created or changed. Reports are large
# (190 KB on a DGX H100, 5.8 MB on a Lenovo SR670): one over the bound is not read. DSP0268:
# TelemetryService, MetricReport.


REPORTS_MAX = 12  # of one BMC; HGX baseboards have some ten definitions, iDRAC offers two dozen
REPORT_MAX_BYTES = 1024 * 1024  # parsed within 15 ms: the event loop waits for so long
READ_S = 60.0  # HGX baseboards put a report together when it is asked for


@dataclass(frozen=True)
class Report:
    """One report as it was read. `too_large`: it was left, and is not worth asking for again."""

    metrics: tuple[Metric, ...] = ()
    too_large: bool = False


async def list_reports(service: Service) -> tuple[str, ...]:
    """Paths of the reports that are there; () where there is no telemetry, or it is disabled.

    Raises `PortError` if the BMC does not answer.
    """
    telemetry = await service.find_part("TelemetryService")
    if not telemetry.data or truth(telemetry.data.get("ServiceEnabled")) is False:
        return ()
    walk = service.walk()
    paths = await walk.read_links(link(telemetry.data, "MetricReports"))
    raise_unread(walk.unread)
    return tuple(paths[:REPORTS_MAX])


async def read(service: Service, path: str) -> Report:
    """One report; nothing where it is gone, or cannot be read as one. Raises `PortError`."""
    call = Call("GET", path, timeout_s=READ_S, size_max_bytes=REPORT_MAX_BYTES)
    try:
        reply = await service.ask(call)
        if reply.status != 200:
            return Report()
        if len(reply.body) > REPORT_MAX_BYTES:  # a transport may bound it by something else
            return Report(too_large=True)
        return Report(read_document(messages.read_document(reply)).metrics)
    except TooLarge:
        return Report(too_large=True)
    except Malformed:
        return Report()


async def set_password(service: Service, username: str, new: Secret) -> Blocker | None:
    """PATCH the account's Password. A factory BMC that answers nothing else names the account."""
    own = username == service.address.username
    named = await service.transport.password_change(service.address) if own else None
    path = named or await _account(service, username)
    if isinstance(path, Blocker):
        return path
    rule = service.quirk.password_if_match
    secret = new.reveal()
    return await service.patch(path, {"Password": secret}, username, if_match=rule, hidden=secret)


# names of the factory's accounts for people; others may be the firmware's own, as NvBluefieldUefi0
# is, which a captured tree of a BlueField-3 lists before root
_PEOPLE = frozenset({"root", "admin", "administrator", "userid"})


async def find_administrator(service: Service) -> str | None:
    """Return the name of the first enabled administrator, of an account for people if there is."""
    names = []
    walk = service.walk()
    path = link(await walk.read_root(), "AccountService")
    accounts = (await walk.read(path)).data if path is not None else {}
    for account in await walk.read_linked(accounts, "Accounts"):
        name = text(account.data.get("UserName"))
        enabled = truth(account.data.get("Enabled")) is not False
        if name and enabled and text(account.data.get("RoleId")) == "Administrator":
            names.append(name)
    if not names:
        raise_unread(walk.gaps)
    return next((n for n in names if n.casefold() in _PEOPLE), names[0] if names else None)


_GAPS_MAX = 8  # resources that are asked for once more


async def _account(service: Service, username: str) -> str | Blocker:
    walk = service.walk()
    path = link(await walk.read_root(), "AccountService")
    if path is None:
        raise_unread(walk.gaps)  # a BMC that restarts is no BMC without accounts
        return service.not_offered(username, "AccountService")
    reply = await service.call("GET", path)
    # also to a session just made, while sessions end early (docs/sources/bmc-faults.md#s4)
    if reply.status == 401:
        reply = await service.call("GET", path)
    if reply.status == 401:
        return read_refusal(reply, username, UNBLOCK)
    if reply.status >= 500:
        raise Unreachable(f"{path}: HTTP status {reply.status}", maybe_executed=False)
    if reply.status == 403:
        # a default password must be changed before anything else is answered
        # (docs/sources/bmc-faults.md#s10)
        return _demanded(reply) or read_refusal(reply, username, UNBLOCK)
    if reply.status != 200:
        return read_refusal(reply, username, UNBLOCK)
    accounts = await walk.read_linked(body_of(reply), "Accounts")
    for account in accounts:
        if text(account.data.get("UserName")) == username:
            return account.path
    for gap in walk.gaps[:_GAPS_MAX]:
        again = await service.call("GET", gap.source)
        if again.status == 403 and (demanded := _demanded(again)) is not None:
            return demanded
    raise_unread(walk.gaps)
    return service.not_offered(username, "account of this name")


def _demanded(reply: Reply) -> str | None:
    """The account that a `PasswordChangeRequired` message names."""
    for message in collect_messages(body_of(reply)):
        if message.key == CHANGE_FIRST:
            return next((p for p in map(path_of, message.args) if p is not None), None)
    return None


_DEMANDED: Json = {
    "EventFormatType": "Event",
    "SubscriptionType": "RedfishEvent",
    "EventTypes": ["StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert"],
    "Name": "provisioner",
    "HttpHeaders": [],
    "RegistryPrefixes": [],
    "ResourceTypes": [],
    "MessageIds": [],
    "OriginResources": [],
}


async def subscribe(service: Service, destination: str, context: str) -> str | Blocker:
    """POST an event destination; the subscription's path."""
    events = await service.find_part("EventService")
    path = link(events.data, "Subscriptions")
    if path is None:
        return service.not_offered("events", "event subscriptions")
    body = {"Destination": destination, "Protocol": "Redfish", "Context": context}
    listed = events.data.get("EventTypesForSubscription")
    types = [t for t in map(text, listed) if t] if isinstance(listed, list) else []
    # what older services demand; the destination is a secret of its own, so that events are known
    # as ours without a context
    demanded = {**_DEMANDED, **({"EventTypes": types} if types else {})}
    reply = await service.post(
        path, body, "events", spare=("Protocol", "Context"), demanded=demanded
    )
    if isinstance(reply, Blocker):
        return reply
    return path_of(reply.headers.get("location", "")) or path_of(body_of(reply)) or path
