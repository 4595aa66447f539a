"""Reads the resources of an inventory from one BMC, and no others, by following links.

A breadth-first crawl of a DGX is 4,700 requests; this is 130, or ten where `$expand` works. Loops,
duplicates and oversized collections end by their bounds; a resource that does not answer becomes
a Gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.adapters.redfish.messages import (
    NOT_NOW,
    Message,
    body_of,
    collect_messages,
    find_error_inside,
    find_failed_part,
)
from provisioner.adapters.redfish.parsing import (
    MEMBERS_MAX,
    Json,
    as_object,
    at,
    link,
    number,
    parse_fields,
    path_of,
    truth,
    unpack,
)
from provisioner.model.outcome import Gap, Reason
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Call,
    Malformed,
    Reply,
    TooLarge,
    Unreachable,
)
from provisioner.quirks import Quirk
from provisioner.quirks.message_ids import Meaning

ROOT = "/redfish/v1"
_GZIP = b"\x1f\x8b"  # no JSON begins so; HPE packs registries without saying it
_EXPANDED = "?$expand=.($levels=1)"
_PAGES_MAX = 64  # of one collection: 50 members a page (Dell) reach MEMBERS_MAX well before
_SILENT_MAX = 3  # reads without an answer in one walk; then the BMC counts as gone
_REQUESTS_MAX = 8192  # of one walk; every resource of a DGX is 4,700
_CUT_NAMED_MAX = 64  # gaps of reads that the allowance cut off; more of them say nothing new
_BYTES_MAX = 32 * 1024 * 1024  # of all answers of one walk; a DGX gives under two
_WALK_LIMIT_S = 900.0  # a DGX takes 130 reads of up to 0.4 s; one slow inventory takes 180 s
ROOT_KNOWN_S = 60.0  # it holds links and the maker's name; a BMC that was reset is asked anew
CHANGE_FIRST = "PasswordChangeRequired"  # Base registry: nothing else is answered before
_AWAY = (Reason.UNREACHABLE, Reason.BUSY)
_LOST_FIELD = "not JSON: the value of"  # begins the gap of a field that is lost alone
_SEEN_MAX = 8192  # paths that one BMC is known to have; every resource of a DGX is 4,700
_ABSENT_AFTER_S = 60.0  # between the first 404 and the one that proves absence
_READS_AT_ONCE = 4  # per walk; the transport bounds reads per BMC more tightly


class Allowance:
    """What one whole operation at a BMC may take, walks or not: time, requests and bytes.

    A limit of each request alone does not end a reading: a BMC that drips answers each just in
    time, and one that lists 100,000 members has each of them read. Time is that in which an answer
    to a read is waited for: pauses between two polls and the time of writes are their callers'.
    """

    def __init__(
        self,
        time_s: float = _WALK_LIMIT_S,
        requests: int = _REQUESTS_MAX,
        size_bytes: int = _BYTES_MAX,
    ) -> None:
        self._time_s = time_s
        self._requests_max = requests
        self._bytes_max = size_bytes
        self._waited_s = 0.0
        self._under_way = 0  # reads
        self._since = 0.0  # when the first of them was sent
        self._requests = 0
        self._bytes = 0

    async def ask(
        self, transport: BmcTransport, address: BmcAddress, call: Call, *, bulk: bool = False
    ) -> Reply:
        """Send a request within what is left. Raises TooLarge, with nothing sent, if nothing is.

        `bulk`: of a file, whose bytes its caller bounds.
        """
        if spent := self.find_spent():
            raise TooLarge(spent)
        self._requests += 1
        if call.method != "GET":  # it is heard to its end
            return await transport.request(address, call)
        left_bytes = call.size_max_bytes if bulk else max(1, self._bytes_max - self._bytes)
        left_s = max(0.1, self._time_s - self._find_waited_s())
        bounded = call
        if left_s < call.timeout_s or left_bytes < call.size_max_bytes:
            bounded = replace(
                call,
                timeout_s=min(call.timeout_s, left_s),
                size_max_bytes=min(call.size_max_bytes, left_bytes),
            )
        self._begin()
        try:
            reply = await transport.request(address, bounded)
        except TooLarge:
            if left_bytes < call.size_max_bytes:  # larger than what was left: that is used up
                self._bytes += left_bytes
            raise
        finally:
            self._end()
        if not bulk:
            self._bytes += len(reply.body)
        return reply

    def _begin(self) -> None:
        if not self._under_way:
            self._since = asyncio.get_running_loop().time()
        self._under_way += 1

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._waited_s += asyncio.get_running_loop().time() - self._since

    def _find_waited_s(self) -> float:
        now = asyncio.get_running_loop().time()
        return self._waited_s + (now - self._since if self._under_way else 0.0)

    def find_spent(self) -> str:
        """Return which limit is reached, "" if none is."""
        if self._find_waited_s() >= self._time_s:
            return f"reading this BMC took more than {self._time_s:.0f} s"
        if self._requests >= self._requests_max:
            return f"reading this BMC took more than {self._requests_max} requests"
        if self._bytes >= self._bytes_max:
            return f"this BMC gave more than {self._bytes_max} bytes already"
        return ""


class Sightings:
    """Which paths a BMC has shown, and since when one of them is missing.

    Services answer 404 for what they have while they gather it again (after a restart, while an
    update runs). So a path that was there is missing, and not absent, until a second look at least
    a minute later finds the same. One that its parent no longer lists is not looked at at all.
    """

    def __init__(self) -> None:
        self._seen: dict[str, float | None] = {}

    def note(self, path: str) -> None:
        if path in self._seen or len(self._seen) < _SEEN_MAX:
            self._seen[path] = None

    def is_missing(self, path: str, now: float) -> bool:
        """Return whether a path that answers 404 was there, and is not known to be gone."""
        if path not in self._seen:
            return False
        since = self._seen[path]
        if since is None:
            self._seen[path] = since = now
        if now - since < _ABSENT_AFTER_S:
            return True
        del self._seen[path]
        return False


@dataclass(frozen=True)
class Resource:
    """One resource at its path. `data` is empty if it could not be read (there is a Gap then)."""

    path: str
    data: Json = field(default_factory=dict)


class Walk:
    """One reading of one BMC. Raises `PortError` if the BMC as a whole cannot be read."""

    def __init__(
        self,
        transport: BmcTransport,
        address: BmcAddress,
        quirk: Quirk,
        chart: dict[str, Resource] | None = None,
        shared: dict[str, Resource] | None = None,
        *,
        alone: bool = False,
        allowance: Allowance | None = None,
        sightings: Sightings | None = None,
    ) -> None:
        """`allowance`: of a whole reading that has more walks; else this one has its own.

        `sightings`: what earlier walks over this BMC have seen.
        """
        self._sightings = sightings or Sightings()
        self._alone = alone
        self._chart = chart
        self._shared = shared  # whole resources, for a second walk over the same tree
        self._transport = transport
        self._address = address
        self._quirk = quirk
        self._expand = False
        self._silent = 0
        self._allowance = allowance or Allowance()
        self._cut = 0  # reads for which nothing of the allowance was left
        self._suffix = ""
        self._slots = asyncio.Semaphore(_READS_AT_ONCE)
        self.gaps: list[Gap] = []
        self.done: set[str] = set()  # paths that were read whole
        self.missed_s = 0.0  # when the last gap was made, by the loop's clock

    @property
    def unread(self) -> list[Gap]:
        """The gaps that leave open what the BMC has: not what it lacks, nor a field lost alone."""
        return [
            gap
            for gap in self.gaps
            if gap.reason is not Reason.NOT_OFFERED and not gap.detail.startswith(_LOST_FIELD)
        ]

    async def read_root(self) -> Json:
        """Return the service root; an unusable one is a Gap and an empty object."""
        root = await self._find_root()
        offered = as_object(at(root, "ProtocolFeaturesSupported", "ExpandQuery"))
        levels = truth(offered.get("Levels")) and truth(offered.get("NoLinks"))
        self._expand = self._quirk.expand and bool(levels)
        return root

    async def _find_root(self) -> Json:
        """Some answer only with a slash at the end; a file server answers with its files."""
        gaps_before = len(self.gaps)
        for path, suffix in ((ROOT, ""), (f"{ROOT}/", ""), (ROOT, "/index.json")):
            self._suffix = suffix
            root = (await self.read(path)).data
            if root:
                del self.gaps[gaps_before:]
                return root
            if self.gaps[gaps_before:] and self.gaps[-1].reason in _AWAY:
                break  # it is restarting: another spelling of the path will not help
        self._suffix = ""
        del self.gaps[gaps_before + 1 :]
        return {}

    async def read(self, path: str) -> Resource:
        """One resource; silence, errors and nonsense become a Gap and an empty resource.

        With a chart, what only leads to other resources is not read again while all is well.
        """
        if self._chart is not None and path in self._chart:
            return self._chart[path]
        if self._shared is not None and path in self._shared:
            return self._shared[path]
        resource = await self._read(path)
        if self._shared is not None and resource.data:
            self._shared[path] = resource
        if self._chart is not None and resource.data and _leads_on(path, resource.data):
            self._chart[path] = resource
        return resource

    async def _read(self, path: str) -> Resource:
        address = path.split("?")[0].rstrip("/") + self._suffix if self._suffix else path
        limit_s = self._quirk.read_timeout_s
        call = Call("GET", address, timeout_s=limit_s, known_s=ROOT_KNOWN_S, alone=self._alone)
        try:
            async with self._slots:
                reply = await self._asked(call)
            self._silent = 0
            if reply.status != 200:
                said = collect_messages(body_of(reply))
                keys = dict.fromkeys(m.key for m in said if m.key)
                detail = " ".join([f"HTTP status {reply.status}", *keys])
                if 300 <= reply.status < 400:
                    detail += ", a redirect that leads to another place or never ends"
                if (partial := _read_partial(path, reply)) is not None:
                    self._gap(path, Reason.MALFORMED, f"{detail}, with the resource in the answer")
                    return Resource(path, partial)
                reason = _reason(reply.status, said)
                if reason is Reason.NOT_OFFERED and self._is_missing(path):
                    return self._gap(path, Reason.BUSY, f"{detail}, though it was there before")
                return self._gap(path, reason, detail)
            body = self._parse(path, reply)
        except Unreachable as error:
            if (spent := self._allowance.find_spent()) and path.rstrip("/") != ROOT:
                return self._cut_off(path, spent)
            self._silent += 1
            if self._silent >= _SILENT_MAX or path.rstrip("/") == ROOT:
                raise
            return self._gap(path, error.reason, str(error))
        except (Malformed, TooLarge) as error:
            if spent := self._allowance.find_spent():
                return self._cut_off(path, spent)
            return self._gap(path, error.reason, str(error))
        if not isinstance(body, dict):
            return self._gap(path, Reason.MALFORMED, "the answer is not a JSON object")
        gaps_before = len(self.gaps)
        resource = Resource(path, self._without_error(path, body))
        if resource.data:
            self._sightings.note(_bare(path))
            if len(self.gaps) == gaps_before:
                self.done.add(_bare(path))
        return resource

    def _is_missing(self, path: str) -> bool:
        return self._sightings.is_missing(_bare(path), asyncio.get_running_loop().time())

    def _parse(self, path: str, reply: Reply) -> Any:
        try:
            packed = reply.body[:2] == _GZIP
            body, lost = parse_fields(unpack(reply.body) if packed else reply.body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None
        if lost:
            self._gap(path, Reason.MALFORMED, f"{_LOST_FIELD} {', '.join(lost[:4])}")
        return body

    def _without_error(self, path: str, body: Json) -> Json:
        """Tell of an error that stands in an answer of status 200 (openbmc/bmcweb#75).

        What stands beside it is a part of the resource; where nothing does, it was not read.
        """
        said = find_error_inside(body)
        if said is None:
            said = find_failed_part(body)
        if said is None:
            return body
        keys = " ".join(dict.fromkeys(m.key for m in said if m.key))
        rest = {k: v for k, v in body.items() if k != "error"}
        whole = any(not key.startswith("@") for key in rest)
        detail = f"HTTP status 200 with an error {keys}: the answer may be incomplete"
        self._gap(path, Reason.MALFORMED if whole else _reason(500, said), detail)
        return rest if whole else {}

    async def _asked(self, call: Call) -> Reply:
        """A read is repeated once: of some hundred, one that is lost must not spoil the walk."""
        try:
            return await self._ask_once(call)
        except Unreachable:
            if self._silent:  # the one before was lost too: the BMC is rather gone
                raise
        return await self._ask_once(call)

    async def _ask_once(self, call: Call) -> Reply:
        return await self._allowance.ask(self._transport, self._address, call)

    async def read_members(
        self, collection: str | None, first: Resource | None = None
    ) -> list[Resource]:
        """Every member of a collection, each path once, in the service's order.

        `first`: its first page where that was just read; it counts if nothing can be expanded.
        """
        if collection is None:
            return []
        listed: dict[str, Json] = {}
        pages = await self._pages(collection, None if self._expand else first)
        for page in pages:
            self._collect(page, listed)
        self._count(pages)
        paths = list(listed)[:MEMBERS_MAX]
        bare = [path for path in paths if not _is_whole(listed[path])]
        read = dict(zip(bare, await self.read_several(bare), strict=True))
        return [read.get(path) or Resource(path, listed[path]) for path in paths]

    async def read_child(self, parent: Resource, key: str) -> Resource | None:
        """Return what `parent` links to as `key`, or what stands at the path of the schema: makers
        print trees of which a link is missing. None where neither is there.
        """
        linked = link(parent.data, key)
        if linked is not None:
            return await self.read(linked)
        gaps_before = len(self.gaps)
        resource = await self.read(f"{parent.path.rstrip('/')}/{key}")
        if not resource.data and all(
            g.reason is Reason.NOT_OFFERED for g in self.gaps[gaps_before:]
        ):
            del self.gaps[gaps_before:]
            return None
        return resource

    async def read_links(self, collection: str | None) -> list[str]:
        """Paths of a collection's members, without reading them."""
        listed: dict[str, Json] = {}
        if collection is not None:
            pages = await self._pages(collection, expand=False)
            for page in pages:
                self._collect(page, listed)
            self._count(pages)
        return list(listed)[:MEMBERS_MAX]

    async def read_several(self, paths: Sequence[str]) -> list[Resource]:
        """Several resources, a few at a time, in the order asked for."""
        return list(await asyncio.gather(*(self.read(path) for path in paths)))

    async def read_linked(self, resource: Json, *keys: str) -> list[Resource]:
        """Members of the collection that `keys` of a resource link to."""
        return await self.read_members(link(resource, *keys))

    async def _pages(
        self, collection: str, first: Resource | None = None, *, expand: bool = True
    ) -> list[Resource]:
        """A collection's pages, following `Members@odata.nextLink`; a loop ends the reading."""
        first = first or await self._first_page(collection, expand=expand)
        pages = [first]
        visited = {collection, first.path}
        following = _next(first.data)
        while following is not None:
            if following in visited or len(pages) >= _PAGES_MAX:
                self._gap(following, Reason.MALFORMED, "the pages of this collection do not end")
                break
            visited.add(following)
            page = await self.read(following)
            pages.append(page)
            following = _next(page.data)
        return pages

    async def _first_page(self, collection: str, *, expand: bool) -> Resource:
        if expand and self._expand:
            gaps_before = len(self.gaps)
            page = await self.read(collection + _EXPANDED)
            if page.data and not _listed(page.data) and _counted(page.data):
                return await self.read(collection)  # lost while it was expanded
            if page.data or any(CHANGE_FIRST in g.detail for g in self.gaps[gaps_before:]):
                return page
            del self.gaps[gaps_before:]  # not being able to expand is no gap
            self._expand = False
        return await self.read(collection)

    def _collect(self, page: Resource, members: dict[str, Json]) -> None:
        """Members of one page. `Members: null` is an empty collection (DPU in NIC mode)."""
        if not page.data:
            return
        listed = page.data.get("Members")
        if listed is None and page.data.get("Members@odata.count") in (None, 0):
            return
        if not isinstance(listed, list):
            self._gap(page.path, Reason.MALFORMED, "Members is not a list")
            return
        if len(members) + len(listed) > MEMBERS_MAX:
            self._gap(page.path, Reason.TOO_LARGE, f"more than {MEMBERS_MAX} members")
        for member in listed[:MEMBERS_MAX]:
            path = path_of(member)
            if path is None:
                self._gap(page.path, Reason.MALFORMED, "a member without a usable link")
            else:
                members.setdefault(path, as_object(member))

    def _count(self, pages: Sequence[Resource]) -> None:
        """A collection that lists fewer members than it counts has lost some: that is a gap.

        None at all is a service that has not gathered them yet, as after a restart.
        """
        counted = _counted(pages[0].data)
        listed = sum(_listed(page.data) for page in pages)
        unread = any(not isinstance(page.data.get("Members"), list) for page in pages)
        if listed >= min(counted, MEMBERS_MAX) or unread:  # by a gap of its own
            return
        detail = f"{counted} members are counted, and {listed or 'none'} listed"
        self._gap(pages[0].path, Reason.MALFORMED if listed else Reason.BUSY, detail)

    def _cut_off(self, path: str, why: str) -> Resource:
        """Leave a resource out as one that did not answer: what it would show is not known."""
        self._cut += 1
        return (
            self._gap(path, Reason.UNREACHABLE, why)
            if self._cut <= _CUT_NAMED_MAX
            else Resource(path)
        )

    def _gap(self, path: str, reason: Reason, detail: str) -> Resource:
        if self._chart is not None:
            self._chart.clear()  # the tree may be another one now
        source = path.removesuffix(_EXPANDED)
        self.missed_s = asyncio.get_running_loop().time()
        self.gaps.append(Gap(reason=reason, source=source, detail=detail[:200]))
        return Resource(path)


def _read_partial(path: str, reply: Reply) -> Json | None:
    """Return the resource that stands beside the error of a 5xx answer, if it is the one asked.

    NVIDIA/bmcweb answers so while one of its D-Bus services is away
    (docs/sources/redfish.md#partial-5xx).
    """
    body = body_of(reply) if reply.status >= 500 else {}
    own = (path_of(body) or "").rstrip("/")
    return body if own and own == _bare(path) else None


def _bare(path: str) -> str:
    return path.split("?")[0].rstrip("/")


def _leads_on(path: str, body: Json) -> bool:
    """Resources that hold links and no facts: they stay as they are until the BMC changes."""
    bare = _bare(path)
    if bare.endswith("/SoftwareInventory"):
        return body.get("Members") == []
    return bare == ROOT or bare.endswith(("/Chassis", "/UpdateService"))


def _is_whole(member: Json) -> bool:
    """Whether an expanded member is the whole resource: AMI drops properties
    (docs/sources/bmc-faults.md#v4).
    """
    return "Id" in member and "@odata.type" in member


def _counted(page: Json) -> int:
    """How many members a collection says that it has; 0 if it does not say."""
    return max(0, int(number(page.get("Members@odata.count")) or 0))


def _listed(page: Json) -> int:
    members = page.get("Members")
    return len(members) if isinstance(members, list) else 0


def _next(page: Json) -> str | None:
    return path_of(page.get("Members@odata.nextLink") or page.get("@odata.nextLink"))


def _reason(status: int, said: Sequence[Message]) -> Reason:
    """Why a resource was not given: what the service says of itself counts before its status."""
    meanings = {message.meaning for message in said}
    if Meaning.NOT_READY in meanings or Meaning.PENDING_JOB in meanings:
        return Reason.BUSY
    if Meaning.CHANGE_PASSWORD in meanings:
        return Reason.LOGIN_REFUSED
    if Meaning.LICENCE in meanings or Meaning.LOCKED in meanings:
        return Reason.REFUSED
    if status in (401, 403):
        return Reason.LOGIN_REFUSED
    if status in (404, 405, 410, 501):
        return Reason.NOT_OFFERED
    return Reason.UNREACHABLE if status >= 500 or status in NOT_NOW else Reason.REFUSED
