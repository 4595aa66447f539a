"""A fleet whose BMCs all have an address of their own, for `bench_watch_whole.py`.

A few simulated nodes serve for all: each of their BMCs listens at one port of every address of
127.0.0.0/8, and each BMC of the fleet is another address there. So connections, sessions, pins and
TLS are each BMC's own for whoever asks. It listens on 0.0.0.0, and therefore only where nothing
leads out: in a network namespace that has nothing but a loopback.

Run by itself it is one of two other processes: `serve NODES`, or `post`, which sends events as
BMCs do (its orders come as a line of JSON): over a new connection each, or over kept ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address
from typing import Any

import aiohttp
import bench_api
from served_bmcs import Served, certificate, offer
from sqlalchemy import Connection, insert

from provisioner.daemon.data import Data
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.redfish.redfish_events import SUBSCRIPTIONS
from provisioner.integrations.sim.redfish.redfish_tree import Answer
from provisioner.integrations.sim.site.serve import Addresses, Front, Server, _raise_file_limit
from provisioner.integrations.sim.site.site import Site
from provisioner.model.alert import Subscription
from provisioner.model.node import BmcRef, Node, State
from provisioner.runtime.event_loop import new_event_loop
from provisioner.store.rows import node_rows
from provisioner.store.schema import schema

LISTENER = "https://127.0.0.1:8443"
EVENTS = f"{LISTENER}/v1/redfish/events"
FIRST = int(IPv4Address("127.1.0.0"))
PIECE = 1024  # nodes of one transaction
CONNECTIONS = 48  # of the poster at once: the listener takes 64 of one address
POSTS_MAX = 8192  # under way at the same time; BMCs know nothing of one another
EVENT = {
    "@odata.type": "#Event.v1_7_0.Event",
    "Id": "1",
    "Name": "Event Array",
    "Events": [
        {
            "MessageId": "ResourceEvent.1.0.ResourceChanged",
            "Message": "One or more resource properties have changed.",
            "MessageSeverity": "OK",
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        }
    ],
}


@dataclass(frozen=True)
class Kind:
    """One served BMC, which many of the fleet are."""

    name: str
    port: int
    username: str
    password: str
    pin: str


def event_id(number: int) -> str:
    """The last part of a subscription's destination; `number` counts all BMCs of the fleet."""
    return f"e{number:020d}"


def event_secret(number: int) -> str:
    """What a BMC sends back with every event: 43 characters, as the daemon's own."""
    return f"s{number:042d}"


def subscription(node: Node, bmc: BmcRef, number: int, now: float) -> Subscription:
    """One that was made a week ago."""
    return Subscription(
        id=event_id(number), node=node.id, bmc=bmc.name,
        path=f"{SUBSCRIPTIONS}/{event_id(number)}",
        context=hashlib.sha256(event_secret(number).encode()).hexdigest(),
        destination=f"{EVENTS}/{event_id(number)}", made_at=now - 7 * 86400.0, delivers=True,
    )  # fmt: skip


def node(number: int, kinds: list[list[Kind]]) -> Node:
    """A released node of the fleet, with eight rails and the BMCs of one served node."""
    mine = kinds[number % len(kinds)]
    bmcs = tuple(
        BmcRef(
            name=kind.name.partition("/")[2], pin=kind.pin, rotated=True,
            url=f"https://{IPv4Address(FIRST + number * len(mine) + b)}:{kind.port}",
        )
        for b, kind in enumerate(mine)
    )  # fmt: skip
    made = bench_api.node(number)
    return made.model_copy(
        update={"state": State.RELEASED, "certificate": f"c-{made.id}", "bmcs": bmcs}
    )


async def fill(data: Data, count: int, kinds: list[list[Kind]], now: float) -> None:
    """The rows that a daemon has of them: nodes, certificates, credentials, subscriptions."""

    def piece(connection: Connection, begin: int) -> None:
        rows = [node(i, kinds) for i in range(begin, min(begin + PIECE, count))]
        told, logins, certificates, nodes = [], [], [], []
        for place, one in enumerate(rows, begin):
            nodes.append({"id": one.id, **node_rows._columns(one), "changed": place})
            proof = certificate(one.id, now)
            body = proof.model_dump_json()
            certificates.append({"id": proof.id, "node": one.id, "body": body,
                                 "issued_at": proof.issued_at, "revoked_reason": ""})  # fmt: skip
            mine = kinds[place % len(kinds)]
            for b, (bmc, kind) in enumerate(zip(one.bmcs, mine, strict=True)):
                made = subscription(one, bmc, place * len(mine) + b, now)
                body = made.model_dump_json()
                told.append({"id": made.id, "node": one.id, "bmc": bmc.name, "body": body})
                name = f"{one.id}/{bmc.name}"
                plain = json.dumps([kind.username, kind.password]).encode()
                sealed = data.master.seal(plain, f"credential {name}")
                logins.append({"name": name, "current": sealed, "key_id": data.master.id})
        connection.execute(insert(schema.nodes), nodes)
        connection.execute(insert(schema.certificates), certificates)
        connection.execute(insert(schema.subscriptions), told)
        connection.execute(insert(schema.credentials), logins)

    for begin in range(0, count, PIECE):
        await data.store.write(partial(piece, begin=begin))


# the other two processes


def answered(front: Front, name: str, *asked: Any) -> Answer:
    """As the simulator answers; every subscription of ours stands at every BMC."""
    method, path, query, headers, body = asked
    if method != "GET" or not path.startswith(f"{SUBSCRIPTIONS}/e"):
        return front.handle(name, method, path, query, headers, body)
    reply = front.handle(name, method, SUBSCRIPTIONS, query, headers, body)
    if reply.status != 200:
        return reply  # nobody is told anything without a login
    number = path.rpartition("/")[2]
    shown = {
        "@odata.id": path, "@odata.type": "#EventDestination.v1_10_0.EventDestination",
        "Id": number, "Name": f"Event Destination {number}", "Context": "", "Protocol": "Redfish",
        "Destination": f"{EVENTS}/{number}", "EventFormatType": "Event",
        "SubscriptionType": "RedfishEvent", "DeliveryRetryPolicy": "TerminateAfterRetries",
    }  # fmt: skip
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(shown).encode())


async def serve(nodes: int) -> None:
    """Tells all kinds; then, at each line it hears, how many requests there were."""
    site = Site(nodes, 7, clock=FastClock(1.0))
    server = Server(site.clock, site.schedule, Addresses("0.0.0.0", 0))
    front = Front(site)
    for service in front.redfish.values():
        table = service.sessions  # that of some thousand BMCs
        table.shape = replace(table.shape, session_max=10**9)
    await offer(server, front, partial(answered, front))
    while await asyncio.to_thread(sys.stdin.readline):
        asked = sum(s.requests for s in front.redfish.values())
        sys.stdout.write(f"{asked} {time.process_time():.2f}\n")
        sys.stdout.flush()
    await server.close()


class Fleet(Served):
    """The served kinds in a process of their own."""

    SCRIPT, ORDERS = __file__, ("serve",)

    def asked(self) -> tuple[int, float]:
        """Requests so far, and the CPU seconds of that process."""
        count, cpu = self.tell("asked").split()
        return int(count), float(cpu)


@contextmanager
def posting(bmcs: int, per_s: float, *, kept: bool = False) -> Iterator[subprocess.Popen[str]]:
    """The process that posts events; `kept`: over connections that stay open between them."""
    way = "kept" if kept else "anew"
    command = [sys.executable, __file__, "post", str(bmcs), str(per_s), "5", way]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def told(process: subprocess.Popen[str]) -> dict[str, float]:
    """What came of the events since the last time."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("told\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


async def post(bmcs: int, per_s: float, seed: int, *, kept: bool) -> None:
    """Send events of BMCs at random; at each line heard, what came of them since the last one."""
    dice, loop = random.Random(seed), asyncio.get_running_loop()
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # as BMCs are shipped
    answers: dict[str, int] = {}
    under_way: set[asyncio.Task[None]] = set()
    how: dict[str, Any] = {"keepalive_timeout": 3600.0} if kept else {"force_close": True}
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls, **how)
    _raise_file_limit()
    timeout = aiohttp.ClientTimeout(total=30.0)

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        document = EVENT | {"Context": event_secret(number)}
        try:
            async with session.post(f"{EVENTS}/{event_id(number)}", json=document) as reply:
                said = str(reply.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = type(error).__name__
        answers[said] = answers.get(said, 0) + 1

    async def send(session: aiohttp.ClientSession) -> None:
        due = loop.time()
        while True:
            due += dice.expovariate(per_s)
            await asyncio.sleep(max(0.0, due - loop.time()))
            if len(under_way) >= POSTS_MAX:
                answers["not sent"] = answers.get("not sent", 0) + 1
                continue
            task = asyncio.create_task(one(session, dice.randrange(bmcs)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        sending = asyncio.create_task(send(session))
        while await asyncio.to_thread(sys.stdin.readline):
            told = answers | {"cpu": round(time.process_time(), 2)}
            answers.clear()
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
        sending.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(int(sys.argv[2])))
    else:  # with asyncio's own loop: uvloop tells of each connection that ends while it closes it
        kept = sys.argv[5] == "kept"
        asyncio.run(post(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), kept=kept))
