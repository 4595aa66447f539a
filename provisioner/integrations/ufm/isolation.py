"""Partitions by UFM's REST API: `Isolation` on InfiniBand.

Every call looks first and again at the end, and what UFM lists then is the answer. That is the
subnet manager's configuration: a port's own P_Key table is read inside the host.
Source: UFM Enterprise REST API guide, "PKey GUIDs REST API" (the requests under /resources; those
under /actions are deprecated there). UFM removes a partition with its last member.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import (
    FAILURES,
    Attempt,
    BoundedSession,
    Trust,
    first_of_each,
    open_session,
    own_url,
    port_error,
    time_limit,
)
from provisioner.integrations.ufm import partitions
from provisioner.integrations.ufm.partitions import Act, Partition
from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, Tenant
from provisioner.ports import (
    Call,
    FabricDelta,
    FabricStep,
    LoginRefused,
    Malformed,
    Member,
    PortError,
    Reply,
    Unreachable,
)
from provisioner.ports.isolation import UfmAddress
from provisioner.ports.wire import status_words

REQUEST_S = 60.0
TRIES_MAX = 3  # an answer that got lost, then another writer's change
# 4,096 ports in each of 255 partitions would be 70 MB of text; a fabric has each port in two
LIST_MAX_BYTES = 32 * 1024 * 1024
IN_PATH_MAX = 64  # GUIDs of one DELETE: they stand in its path, and servers cut that at 8 KB
IN_BODY_MAX = 1024
T = TypeVar("T")


class UfmTransport:
    """Requests to one UFM. To be used in one event loop, and closed there."""

    def __init__(self, address: UfmAddress, ca_file: Path | None = None) -> None:
        self.address = address
        # each login has its path (guide, "Complementary Information")
        self._prefix = "/ufmRest" if address.username else "/ufmRestV3"
        self._trust = Trust(ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def request(self, call: Call) -> Reply:
        """Send one request once; `call.path` is relative to the API. Raises `PortError` only."""
        attempt = Attempt(call.method == "GET")
        where = f"{call.method} {self.address.url}{call.path}"[:200]
        try:
            base = URL(self.address.url)
            if base.scheme != "https":
                raise LoginRefused(f"{self.address.url}: credentials never go over plain http")
            url = own_url(self.address.url, f"{self._prefix}{call.path}", encoded=True)
            options: dict[str, Any] = {
                "headers": self._headers(call),
                "timeout": time_limit(call.timeout_s),
            }
            if call.body is not None:
                options["data"] = json.dumps(call.body).encode()
            if self._session is None:
                self._session = open_session(per_host=1, keep_alive=False)
            tls = self._trust.option(self.address.url, self.address.pin, insecure=False)
            bounded = BoundedSession(self._session, tls, attempt, call.size_max_bytes)
            async with bounded.request(call.method, url, **options) as answer:
                body = await answer.read()
        except (PortError, *FAILURES) as error:
            raise port_error(where, error, attempt) from None
        if answer.status in (401, 403):
            raise LoginRefused(f"{where}: status {answer.status}")
        return Reply(answer.status, first_of_each(answer.headers.items()), body)

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()
        self._session = None

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        secret = self.address.secret
        name = self.address.username
        if secret is not None:  # a token takes the place of the coded name and password
            token = secret.reveal()
            basic = aiohttp.encode_basic_auth(name, token) if name else f"Basic {token}"
            headers["Authorization"] = basic
        return headers


class UfmIsolation:
    """The port `Isolation` for one InfiniBand fabric.

    `default_limited`: a person's confirmation for the default partition
    (`partitions.py`).
    """

    def __init__(self, transport: UfmTransport, *, default_limited: bool = False) -> None:
        self._transport = transport
        self._limited = default_limited
        self._writing = asyncio.Lock()

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        """Return the partitions to make and to delete.

        There is one UFM, so that `only` spares nothing.
        """
        state = await self._look()
        if isinstance(state, Blocker):
            return FabricDelta(blockers=(state,))
        planned = partitions.plan_partitions(tenants, state)
        if isinstance(planned, Blocker):
            return FabricDelta(blockers=(planned,))
        name = self._transport.address.url
        steps = tuple(FabricStep(name, (str(act),), act) for act in planned)
        changed = {act.pkey for act in planned}
        networks = frozenset(t.vrf for t in tenants if t.number is not None and t.pkey in changed)
        return FabricDelta(steps, networks=networks)

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        """Make and delete them. A partition that gained a member meanwhile stays."""
        assert not delta.blockers
        async with self._writing:
            for act in (step.order for step in delta.steps):
                assert isinstance(act, Act)
                if (problem := await self._until_so(act)) is not None:
                    return (problem,)
        return ()

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker:
        """Return the partitions of each port, by the names of their tenants."""
        guids = _guids(members)
        if isinstance(guids, Blocker):
            return guids
        state = await self._look()
        if isinstance(state, Blocker):
            return state
        networks = partitions.list_networks(guids.values(), tenants, state)
        return {member: networks[guid] for member, guid in guids.items()}

    async def read_members(
        self, tenants: Sequence[Tenant]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        """Return the networks of every GUID that is in any partition but the default one."""
        state = await self._look()
        return state if isinstance(state, Blocker) else partitions.list_members(tenants, state)

    async def list_partitions(self, tenants: Sequence[Tenant]) -> FabricPartitions:
        """Return the partitions that UFM lists, and how the subnet manager is protected."""
        state = await self._look()
        if isinstance(state, Blocker):
            return FabricPartitions(items=(), keys=None, blockers=(state,))
        listed = partitions.list_partitions(tenants, state)
        keys = await self._read("/app/smconf", partitions.read_subnet_keys)
        if isinstance(keys, Blocker):
            return FabricPartitions(items=listed, keys=None, blockers=(keys,))
        return FabricPartitions(items=listed, keys=keys, blockers=())

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        """Move the ports out of every other partition, then into this one."""
        guids = _guids(members)
        if isinstance(guids, Blocker):
            return (guids,)
        ports = sorted(set(guids.values()))
        async with self._writing:
            for _ in range(TRIES_MAX):
                state = await self._look()
                if isinstance(state, Blocker):
                    return (state,)
                if vrf != MAINTENANCE_VRF:
                    joined = partitions.find_default_connection(ports, state, limited=self._limited)
                    if joined is not None:
                        return (joined,)
                calls = partitions.plan_placing(ports, vrf, tenants, state)
                if isinstance(calls, Blocker):
                    return (calls,)
                if not calls:
                    return ()
                for act in calls:
                    if (problem := await self._until_so(act)) is not None:
                        return (problem,)
        detail = f"after {TRIES_MAX} tries the ports are still not in {vrf} alone"
        return (_blocker(Reason.ISOLATION, ports[0], detail),)

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()

    # --- one act, sent until it is seen

    async def _until_so(self, act: Act) -> Blocker | None:
        problem: Blocker | None = None
        for _ in range(TRIES_MAX):
            state = await self._look()
            if isinstance(state, Blocker):
                problem = state
                continue
            if partitions.is_so(act, state):
                return None
            if act.verb == "delete" and state[act.pkey].members:
                detail = f"{len(state[act.pkey].members)} ports are in it"
                return _blocker(Reason.ISOLATION, f"P_Key {act.pkey:#06x}", detail)
            problem = await self._send(act, state)
            if problem is not None and problem.reason is Reason.LOGIN_REFUSED:
                return problem  # the same credential again would only lock the account
        state = await self._look()
        if isinstance(state, Blocker):
            return state
        unseen = _blocker(Reason.ISOLATION, str(act), "UFM took it, and does not list it")
        return None if partitions.is_so(act, state) else problem or unseen

    async def _send(self, act: Act, seen: Mapping[int, Partition]) -> Blocker | None:
        for call in _calls(act, seen):
            try:
                reply = await self._transport.request(call)
            except PortError as error:
                return _of(error, str(act))
            absent = call.method == "DELETE" and reply.status == 404
            if reply.status >= 300 and not absent:
                return _blocker(Reason.REFUSED, str(act), status_words(reply))
        return None

    async def _look(self) -> dict[int, Partition] | Blocker:
        return await self._read("/resources/pkeys?guids_data=true", partitions.read_partitions)

    async def _read(self, path: str, parse: Callable[[Any], T | str]) -> T | Blocker:
        """Return the parsed answer to a reading request. `parse`: it returns why it cannot."""
        call = Call("GET", path, timeout_s=REQUEST_S, size_max_bytes=LIST_MAX_BYTES)
        try:
            reply = await self._transport.request(call)
            if reply.status >= 300:
                raise Unreachable(f"{path}: status {reply.status}", maybe_executed=False)
            answer = parse(reply.json())
            if isinstance(answer, str):
                raise Malformed(answer)
        except PortError as error:
            return _of(error, self._transport.address.url)
        return answer


def open_partitions(address: UfmAddress, ca_file: Path | None, *, limited: bool) -> UfmIsolation:
    """Return the partitions that this UFM manages; the caller closes them."""
    return UfmIsolation(UfmTransport(address, ca_file), default_limited=limited)


def _calls(act: Act, seen: Mapping[int, Partition]) -> list[Call]:
    key = f"{act.pkey:#06x}"
    path = f"/resources/pkeys/{quote(key)}"
    rules = {"index0": True, "ip_over_ib": True}
    if act.verb == "delete":
        return [Call("DELETE", path, timeout_s=REQUEST_S)]
    if act.verb == "remove":
        parts = [act.guids[i : i + IN_PATH_MAX] for i in range(0, len(act.guids), IN_PATH_MAX)]
        return [Call("DELETE", f"{path}/guids/{','.join(p)}", timeout_s=REQUEST_S) for p in parts]
    calls = []
    if act.pkey not in seen:
        body: dict[str, Any] = {"pkey": key, **rules}
        calls.append(Call("POST", "/resources/pkeys/add", body, timeout_s=REQUEST_S))
    for i in range(0, len(act.guids), IN_BODY_MAX):
        part = list(act.guids[i : i + IN_BODY_MAX])
        body = {"pkey": key, "guids": part, "membership": "full", **rules}
        calls.append(Call("POST", "/resources/pkeys/", body, timeout_s=REQUEST_S))
    return calls


def _guids(members: Sequence[Member]) -> dict[Member, str] | Blocker:
    guids = {}
    for member in members:
        guid = partitions.read_guid(member.name)
        if guid is None:
            return _blocker(Reason.MALFORMED, member.name[:40], "this is no GUID of a port")
        guids[member] = guid
    if not guids:
        return _blocker(Reason.ISOLATION, "no ports", "there is no port that could be isolated")
    return guids


def _of(error: PortError, subject: str) -> Blocker:
    return _blocker(error.reason, subject, str(error) or error.reason.value)


def _blocker(reason: Reason, subject: str, detail: str) -> Blocker:
    unblock = "Look at UFM's partitions and its log, then try again."
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
