"""The time of a BMC: read, compared with ours, and set through NTP or, without it, by hand.

source: DMTF schemas Manager 1.19 (DateTime, DateTimeLocalOffset) and ManagerNetworkProtocol 1.8
(NTP.NTPServers, NTP.ProtocolEnabled); trees of a DGX H100, a PowerEdge R750 and a BlueField-3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from provisioner.adapters.redfish.parsing import Json, as_object, link, text, truth
from provisioner.adapters.redfish.service import Service, not_offered
from provisioner.model.inventory import BmcClock
from provisioner.model.outcome import Blocker, Reason

SET_WITHIN_S = 5.0  # a clock that is read in whole seconds over a slow answer is no better
_SERVERS_MAX = 4  # of those that a BMC lists; all trees have two or three


async def read_clock(service: Service, now: Callable[[], float]) -> BmcClock | None:
    """Return the clock of the BMC's own manager; None if it has no manager."""
    before = now()
    manager = await service.read_manager()
    if manager is None:
        return None
    after = now()
    middle = (before + after) / 2
    shown = _parse_time(text(manager.data.get("DateTime")))
    ntp = as_object((await _read_network(service, manager.data)).get("NTP"))
    return BmcClock(
        skew_s=None if shown is None else round(shown - middle, 1),
        uncertainty_s=round((after - before) / 2, 1),
        offset=text(manager.data.get("DateTimeLocalOffset")),
        ntp=truth(ntp.get("ProtocolEnabled")),
        ntp_servers=_servers(ntp),
        source=manager.path,
    )


async def set_clock(
    service: Service, servers: Sequence[str], now: Callable[[], float]
) -> Blocker | None:
    """Have the BMC take its time from these servers; one without NTP gets our time instead.

    A BMC that does so already is sent nothing.
    """
    manager = await service.read_manager()
    data: Json = manager.data if manager is not None else {}
    path = link(data, "NetworkProtocol")
    network = await _read_network(service, data)
    ntp = as_object(network.get("NTP"))
    if path is not None and "NTPServers" in ntp and servers:
        if truth(ntp.get("ProtocolEnabled")) and _servers(ntp) == tuple(servers):
            return None
        body = {"NTP": {"ProtocolEnabled": True, "NTPServers": list(servers)}}
        return await service.patch(path, body, "time")
    if manager is None or "DateTime" not in data:
        return not_offered("time", "time that can be set: neither NTP servers nor DateTime")
    shown = _parse_time(text(data.get("DateTime")))
    if shown is not None and abs(shown - now()) <= SET_WITHIN_S:
        return None
    stamp = datetime.fromtimestamp(now(), UTC).isoformat(timespec="seconds")
    only = ("DateTime",)
    refused = await service.patch(manager.path, {"DateTime": stamp}, "time", always=only)
    if refused is not None and refused.reason is Reason.PRECONDITION:
        # nothing was changed: a tag over the whole resource is another one each second
        stamp = datetime.fromtimestamp(now(), UTC).isoformat(timespec="seconds")
        return await service.patch(
            manager.path, {"DateTime": stamp}, "time", if_match="any", always=only
        )
    return refused


async def _read_network(service: Service, manager: Json) -> Json:
    path = link(manager, "NetworkProtocol")
    return await service.get(path) if path is not None else {}


def _servers(ntp: Json) -> tuple[str, ...]:
    """Return the servers without blanks around them, as a DGX prints them."""
    listed = ntp.get("NTPServers")
    named = [text(one) for one in listed] if isinstance(listed, list) else []
    return tuple(one for one in named[:_SERVERS_MAX] if one)


def _parse_time(shown: str | None) -> float | None:
    """Return the seconds since the epoch; a time without an offset is UTC, as DSP0266 9.5 asks."""
    if shown is None:
        return None
    try:
        moment = datetime.fromisoformat(shown)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
