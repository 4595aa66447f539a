"""The BMCs' own reports: follow their streams, keep our subscriptions, take in events.

A stream comes first, since no other sender can write into it; where a BMC has none, it is asked to
post to our listener, with a secret of its own. All input is bounded in size and in rate, and a
break only means that the node is looked at soon.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.eventing.events import (
    Pushed,
    identify_event,
    is_meaningful,
    order_by_time,
    read_document,
    resume_point,
)
from provisioner.execution.observe.watch import OutOfBand
from provisioner.model.alert import Subscription, Way
from provisioner.model.node import BmcRef, Node, Origin
from provisioner.model.outcome import Blocker
from provisioner.ports import Clock, EventStreams, PortError
from provisioner.runtime.event_loop import end_tasks
from provisioner.store.repositories.alerts import SqlAlertRepository

# ------------------------------------------------------------------------------
# Remembers which events of each BMC were taken in, so that a replay reopens nothing.
#
# The memory is in the store: a daemon that comes back, or takes another's place, is sent the same
# old events by the same BMCs. Only events that mean something are remembered; of the others a
# repeat does no harm.


EVENTS_KEPT = 256  # of one BMC: bmcweb keeps and replays 200
BMCS_KEPT = 4096  # in memory, the last that sent something; of the others the store is read

Key = tuple[str, str]  # node, BMC


class EventMemory:
    """To be used by one task per BMC; several only let a repeat through, which is no harm then."""

    def __init__(self, book: SqlAlertRepository) -> None:
        self._book = book
        self._kept: OrderedDict[Key, list[str]] = OrderedDict()  # the newest last

    async def drop_repeats(self, node: str, bmc: str, document: Pushed) -> Pushed:
        """Return the document in the order of its events, without those that came before."""
        if not any(is_meaningful(event) for event in document.events):
            return document
        before = set(await self._read(node, bmc))
        fresh = [
            event
            for event in order_by_time(document).events
            if not is_meaningful(event) or identify_event(event) not in before
        ]
        return document.model_copy(update={"events": tuple(fresh)})

    async def remember(self, node: str, bmc: str, document: Pushed) -> None:
        """Keep the events of a document whose consequences are on disk."""
        meaningful = [identify_event(e) for e in document.events if is_meaningful(e)]
        new = [identity for identity in meaningful if identity is not None]
        if not new:
            return
        identities = await self._read(node, bmc)
        identities += [identity for identity in dict.fromkeys(new) if identity not in identities]
        del identities[:-EVENTS_KEPT]
        await self._book.put_received(node, bmc, tuple(identities))

    async def _read(self, node: str, bmc: str) -> list[str]:
        key = (node, bmc)
        if key not in self._kept:
            read: Sequence[str] = await self._book.list_received(node, bmc)
            self._kept.setdefault(key, list(read))
            while len(self._kept) > BMCS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 2.0
BACKOFF_MAX_S = 600.0
LIVED_S = 60.0  # a stream that lasted so long is opened again at once; a service that is full of
# them answers 200 and ends at once (bmcweb has ten)
TEST_AGAIN_S = 6 * 3600.0  # a subscription is tried so often at most, unless something came by it
TEST_SILENT_S = 3600.0  # ... and one by which nothing came yet
TEST_TAKES_S = 120.0  # bmcweb retries three times
# documents of one BMC; a healthy one sends a few an hour
BURST = 64.0
PER_SECOND = 2.0
SPREAD = 8  # streams of one round begin within so many seconds of one another

Receive = Callable[[str, str, Pushed], Awaitable[None]]


class Rate:
    """A token bucket on the daemon's clock."""

    def __init__(self, now: float) -> None:
        self._left = BURST
        self._at = now

    def wait_s(self, now: float) -> float:
        """Take one; for how long it is over the rate (0: it is not)."""
        self._left = min(BURST, self._left + max(0.0, now - self._at) * PER_SECOND)
        self._at = now
        self._left -= 1.0
        return max(0.0, -self._left / PER_SECOND)

    def take_one(self, now: float) -> bool:
        if self.wait_s(now) > 0:
            self._left += 1.0
            return False
        return True


class EventFeeds:
    """`streams` None: none are followed; `listener` "": nothing can be posted to us."""

    def __init__(
        self,
        book: SqlAlertRepository,
        clock: Clock,
        eyes: OutOfBand,
        receive: Receive,
        *,
        streams: EventStreams | None,
        listener: str,
        new_secret: Callable[[], str],
        streams_max: int,
    ) -> None:
        self._book = book
        self._clock = clock
        self._eyes = eyes
        self._receive = receive
        self._streams = streams
        self._listener = listener
        self._new_secret = new_secret
        self._streams_max = streams_max
        self._following: dict[Key, asyncio.Task[None]] = {}
        self._connected: set[Key] = set()
        self._ours: dict[Key, Subscription] = {}
        self._keys: dict[str, Key] = {}  # of `_ours` by its id, which is how an event names it
        self._at: Counter[str] = Counter()  # of `_ours` by node
        self._tested: dict[str, float] = {}  # id -> when a test event was last accepted
        self._came: dict[str, float] = {}  # id -> when something last came by it
        self._rates: dict[str, Rate] = {}
        self._doubted: set[str] = set()  # ids by which events may have been lost
        self.broke: set[Key] = set()  # ways that broke, or lost events, since the last round

    async def restore(self, nodes: Collection[str]) -> None:
        """Read the subscriptions of nodes that became ours, by whichever daemon they were made."""
        for made in await self._book.list_subscriptions(nodes):
            if (made.node, made.bmc) not in self._ours:
                self._keep(made)

    def hand_over(self, nodes: Collection[str]) -> None:
        """Forget the subscriptions of nodes that a peer looks after: it finds them in the store.

        Until it has made its own, what comes here by them is not taken (503), and comes again.
        """
        for made in [made for made in self._ours.values() if made.node in nodes]:
            self._forget(made)

    @property
    def followed(self) -> int:
        """Return how many streams are followed now, or tried to be."""
        return len(self._following)

    @property
    def listens(self) -> bool:
        """Return whether anything can be posted to us."""
        return bool(self._listener)

    def find_way(self, node: str, bmc: str) -> Way:
        if (node, bmc) in self._following:
            return Way.STREAM if (node, bmc) in self._connected else Way.STREAM_BROKEN
        made = self._ours.get((node, bmc))
        if made is None or not made.path:
            return Way.POLLED
        proved = self._comes_here(made) and self._delivers(made) and made.id not in self._doubted
        return Way.SUBSCRIPTION if proved else Way.UNPROVED

    def doubt(self, subscription_id: str = "") -> None:
        """Rely on no subscription, or not on this one, until something comes by it again.

        Events may have been lost. Its BMC is asked at each look meanwhile, and the BMC of this one
        at once.
        """
        if not subscription_id:
            self._doubted.update(self._keys)
        elif subscription_id in self._keys:
            self._doubted.add(subscription_id)
            self.broke.add(self._keys[subscription_id])

    def _comes_here(self, made: Subscription) -> bool:
        """Return whether it is to our listener, and not to an earlier address or a peer's."""
        return self.listens and made.destination.startswith(f"{self._listener}/")

    def _delivers(self, made: Subscription) -> bool:
        """Return whether something came by it, and again since it was last tried."""
        tested = self._tested.get(made.id, 0.0)
        came = self._came.get(made.id, 0.0)
        return made.delivers and (came >= tested or self._clock.now() - tested <= TEST_TAKES_S)

    def is_reporting(self, node: str, bmc: str) -> bool:
        """Return whether this BMC's news come to us without our asking."""
        return self.find_way(node, bmc) in (Way.STREAM, Way.SUBSCRIPTION)

    async def attend(self, node: Node, bmc: BmcRef) -> None:
        """Ensure that this BMC reports its events, in the best way that it offers."""
        key = (node.id, bmc.name)
        offered = await self._eyes.read_offer(node, bmc)
        if offered is None:
            return
        room = len(self._following) < self._streams_max or key in self._following
        if offered.stream and self._streams is not None and room:
            if key not in self._following:
                task = asyncio.create_task(self._follow(node, bmc, offered.stream))
                self._following[key] = task
                task.add_done_callback(lambda _: self._following.pop(key, None))
        elif offered.subscriptions and self._listener:
            await self._subscribe(node, bmc, offered.subscriptions)

    async def keep_only(self, watched: Collection[str]) -> None:
        """Attend only to these nodes: streams of all others end."""
        for key in [k for k in self._following if k[0] not in watched]:
            self._following[key].cancel()

    async def end(self, node: Node) -> None:
        """Cancel the subscriptions at the BMCs of a node that no longer serves.

        Those of a detached node are only forgotten: nothing is sent to it.
        """
        for bmc in node.bmcs:
            made = self._ours.get((node.id, bmc.name))
            if made is None:
                continue
            if node.origin is Origin.DETACHED:
                await self._drop(made)
                continue
            try:
                client = await self._eyes.open_client(node, bmc)
                if isinstance(client, Blocker):
                    continue
                path = made.path or await self._find(client, made)
                if path and await subscriptions.end_subscription(
                    client.service, path, made.destination
                ):
                    continue
            except PortError:
                continue  # at the next round
            await self._drop(made)

    @property
    def subscribed(self) -> Set[str]:
        """Return the nodes at whose BMCs a subscription of ours is left."""
        return self._at.keys()

    async def take_delivery(self, subscription_id: str, document: Any) -> int:
        """Take in a post to our listener; return the HTTP status for it.

        The unguessable id is the secret. A context counts where there is one: bmcweb's metric
        reports carry it, its events do not.
        """
        document_read = read_document(document)
        key = self._keys.get(subscription_id)
        made = None if key is None else self._ours.get(key)
        if made is None and await self._book.has_subscription(subscription_id):
            return 503  # a peer's now, or not yet read after a start: it comes again, and bars none
        context_sha256 = hashlib.sha256(
            document_read.context.encode("utf-8", "replace")
        ).hexdigest()
        if made is None or (
            document_read.context and not hmac.compare_digest(context_sha256, made.context)
        ):
            return 404
        rate = self._rates.setdefault(made.id, Rate(self._clock.now()))
        if not rate.take_one(self._clock.now()):
            self.doubt(made.id)
            return 429
        self._came[made.id] = self._clock.now()
        self._doubted.discard(made.id)
        if not made.delivers:
            await self._prove(made, delivers=True)
        await self._receive(made.node, made.bmc, document_read)
        return 200  # with a body; see `daemon.event_connections`

    async def close(self) -> None:
        """Stop following; subscriptions stay, and count again at the next start."""
        await end_tasks(*self._following.values())

    async def _follow(self, node: Node, bmc: BmcRef, path: str) -> None:
        """Follow one BMC's stream for ever: reopened at once after one that lived, else less often.

        A stream without events is no failure: a healthy BMC reports nothing for days.
        """
        assert self._streams is not None
        last_id = ""
        wait_s = BACKOFF_FIRST_S
        rate = Rate(self._clock.now())
        await self._clock.sleep(len(self._following) % SPREAD)
        while True:
            began: float | None = None
            try:
                address = await self._eyes.reach.address(node, bmc)
                if isinstance(address, Blocker):
                    return
                async with self._streams.open(address, path, last_id) as events:
                    self._connected.add((node.id, bmc.name))
                    began = self._clock.now()
                    number = 0
                    async for event_id, document in events:
                        read = read_document(document)
                        number += 1
                        last_id = resume_point(last_id, event_id, number, read)
                        await self._clock.sleep(rate.wait_s(self._clock.now()))
                        await self._receive(node.id, bmc.name, read)
            except PortError as error:
                log.info("%s/%s: its event stream broke: %s", node.id, bmc.name, error)
            finally:
                self._connected.discard((node.id, bmc.name))
            self.broke.add((node.id, bmc.name))
            if began is not None and self._clock.now() - began >= LIVED_S:
                wait_s = BACKOFF_FIRST_S
                continue
            await self._clock.sleep(wait_s)
            wait_s = min(wait_s * 2, BACKOFF_MAX_S)

    async def _subscribe(self, node: Node, bmc: BmcRef, collection: str) -> None:
        """Keep our subscription, or make it again: a BMC that was reset has forgotten it."""
        key = (node.id, bmc.name)
        made = self._ours.get(key)
        try:
            client = await self._eyes.open_client(node, bmc)
            if isinstance(client, Blocker):
                return
            if made is not None:
                path = made.path or await self._find(client, made)
                current = self._comes_here(made)
                if path and await subscriptions.is_standing(client.service, path, made.destination):
                    if current and made.path:
                        await self._try(client, made)
                        return
                    # of an earlier address of ours, or one whose secret may not be the one we know
                    if await subscriptions.end_subscription(client.service, path, made.destination):
                        return
                await self._drop(made)
            secret = self._new_secret()
            name = self._new_secret()[:22]
            new = Subscription(
                id=name,
                node=node.id,
                bmc=bmc.name,
                context=hashlib.sha256(secret.encode()).hexdigest(),
                destination=f"{self._listener}/{name}",
                made_at=self._clock.now(),
            )
            await self._book.put_subscription(new)  # before it is made, so that none is forgotten
            self._keep(new)
            path_or_no = await subscriptions.make_subscription(
                client.service, new.destination, secret
            )
        except PortError as error:
            log.info("%s/%s: no subscription now: %s", node.id, bmc.name, error)
            return
        if isinstance(path_or_no, Blocker):
            log.info("%s/%s: no subscription: %s", node.id, bmc.name, path_or_no)
            return
        self._keep(self._ours[key].model_copy(update={"path": path_or_no}))
        await self._book.put_subscription(self._ours[key])
        try:
            await self._try(client, self._ours[key])
        except PortError as error:
            log.info("%s/%s: no test event now: %s", node.id, bmc.name, error)

    async def _try(self, client: Redfish, made: Subscription) -> None:
        """Have a test event sent, if nothing came by this subscription lately.

        If the last test event did not come, the subscription counts as silent from now on.
        """
        now = self._clock.now()
        tested = self._tested.get(made.id, 0.0)
        came = self._came.get(made.id, 0.0)
        if made.delivers and not self._delivers(made):
            await self._prove(made, delivers=False)
        again_s = TEST_AGAIN_S if made.delivers else TEST_SILENT_S
        if now - max(tested, came) < again_s:
            return
        refused = await subscriptions.submit_test(client.service)
        if refused is not None:
            log.info("%s/%s: no test event: %s", made.node, made.bmc, refused)
            return
        self._tested[made.id] = now

    async def _prove(self, made: Subscription, *, delivers: bool) -> None:
        """Write down whether anything comes by a subscription."""
        finding = "events come by" if delivers else "no test event came by"
        log.info("%s/%s: %s our subscription", made.node, made.bmc, finding)
        self._keep(made.model_copy(update={"delivers": delivers}))
        await self._book.put_subscription(self._ours[made.node, made.bmc])

    def _keep(self, made: Subscription) -> None:
        key = made.node, made.bmc
        old = self._ours.get(key)
        if old is None:
            self._at[made.node] += 1
        else:
            self._keys.pop(old.id, None)
        self._ours[key] = made
        self._keys[made.id] = key

    async def _drop(self, made: Subscription) -> None:
        await self._book.drop_subscription(made.id)
        self._forget(made)

    def _forget(self, made: Subscription) -> None:
        if self._ours.pop((made.node, made.bmc), None) is None:
            return
        for memory in (self._keys, self._tested, self._came):
            memory.pop(made.id, None)
        self._rates.pop(made.id, None)
        self._doubted.discard(made.id)
        self._at[made.node] -= 1
        if not self._at[made.node]:
            del self._at[made.node]

    async def _find(self, client: Any, made: Subscription) -> str:
        offered = await subscriptions.read_offer(client.service)
        if not offered.subscriptions:
            return ""
        return await subscriptions.find(client.service, offered.subscriptions, made.destination)
