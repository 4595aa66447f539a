"""Reads everything that a BMC shows, by GET alone, and makes a recording without its site's values.

The walk follows every link below /redfish/v1, level by level, a few requests at a time. It leaves
out what belongs to a site and shows no fact of the product: entries of logs, sessions, tasks and
subscriptions; and the schemas, which DMTF publishes. A resource that does not answer is listed with
the reason. A service that never ends is cut off by the bounds, and the recording says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from provisioner import quirks
from provisioner.adapters.redfish.messages import read_document
from provisioner.adapters.redfish.parsing import path_of, text
from provisioner.adapters.redfish.recorded import Recording
from provisioner.adapters.redfish.walk import ROOT
from provisioner.integrations.recordings.pseudonyms import Pseudonyms
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Call,
    LoginRefused,
    PortError,
    Unreachable,
)

RESOURCES_MAX = 12_000  # a DGX H100 has 4,700
BYTES_MAX = 128 * 1024 * 1024  # of all answers
DEPTH_MAX = 64  # of one resource; recorded ones have under 10
PAGES_MAX = 64  # of one collection; a Dell shows 50 members a page
_NEXT = "Members@odata.nextLink"
_READS_AT_ONCE = 4
_SILENT_MAX = 5  # requests in a row without an answer: the BMC is gone
_LEFT_OUT = re.compile(
    r"/(LogEntries|Entries|Sessions|Tasks|Jobs|Subscriptions|Dumps?)/[^/]+"
    r"|/LogServices/[^/]+/(Entries|LogEntries)|/(JsonSchemas|SchemaStore|\$metadata|odata)\b"
    r"|/Registries/(?![^/]*Attribute)[^/]+|\?|/redfish/v1/SSE",
)

Json = Mapping[str, Any]
Progress = Callable[[int, int], None]  # resources read, and known so far


class Recorder:
    """One walk over one BMC. Raises `PortError` if its service root cannot be read."""

    def __init__(self, transport: BmcTransport, address: BmcAddress, progress: Progress) -> None:
        self._transport = transport
        self._address = address
        self._progress = progress
        self._slots = asyncio.Semaphore(_READS_AT_ONCE)
        self._bytes = 0
        self._silent = 0
        self._tree: dict[str, Json] = {}
        self._unread: dict[str, str] = {}
        self._refused = 0  # requests that need a login, or another one
        self._failure: PortError | None = None  # the newest

    async def record(self, pseudonyms: Pseudonyms, recorded_by: str) -> Recording:
        """Return the recording. `recorded_by`: date and version, for its source sentence."""
        level = [ROOT]
        known = {ROOT}
        while level:
            await asyncio.gather(*(self._read(path) for path in level))
            if ROOT not in self._tree:
                if self._failure is not None:
                    raise self._failure
                reason = self._unread.get(ROOT, "it is no Redfish service")
                raise Unreachable(f"{ROOT}: {reason}", maybe_executed=False)
            linked = (link for path in level for link in find_links(self._tree.get(path)))
            level = [link for link in dict.fromkeys(linked) if link not in known]
            room = RESOURCES_MAX - len(known)
            for path in level[room:]:
                self._unread[path] = f"more than {RESOURCES_MAX} resources"
            level = level[:room]
            known.update(level)
        return self._finish(pseudonyms, recorded_by)

    def _finish(self, pseudonyms: Pseudonyms, recorded_by: str) -> Recording:
        root = self._tree[ROOT]
        if len(self._tree) == 1 and self._refused:
            raise LoginRefused("the BMC shows its service root alone without this login")
        quirk = quirks.identify(root)
        product = text(root.get("Product")) or _find_model(self._tree) or "unknown product"
        tree, withheld = pseudonyms.replace_all(self._tree)
        unread, _ = pseudonyms.replace_all({path: {"r": r} for path, r in self._unread.items()})
        return Recording(
            source=f"{quirk.title}: {product}; {recorded_by}",
            vendor=quirk.name,
            tree=dict(sorted(tree.items())),
            replaced=pseudonyms.count_kinds(),
            removed=pseudonyms.removed,
            unread={path: one["r"] for path, one in sorted(unread.items())},
            withheld=withheld,
        )

    async def _read(self, path: str) -> None:
        async with self._slots:
            reason = await self._read_into_tree(path)
        if reason:
            self._unread[path] = reason
        done = len(self._tree) + len(self._unread)
        self._progress(done, done)

    async def _read_into_tree(self, path: str) -> str:
        """Read one resource; return the reason if it is not in the tree now, or not whole.

        The pages of a collection become one resource: a query is no path of a recording. Where
        they do not end, it links to itself as its next page, so that whoever reads the recording
        finds no end either: neither a list that is whole nor one that is not there.
        """
        body, reason = await self._fetch(path)
        following = _find_next(body)
        visited = {path}
        while following is not None and not reason:
            if following in visited or len(visited) > PAGES_MAX:
                self._tree[path] = {**body, _NEXT: path}
                return f"more than {PAGES_MAX} pages"
            visited.add(following)
            page, reason = await self._fetch(following)
            body = {**body, "Members": [*_list_members(body), *_list_members(page)]}
            following = _find_next(page)
        if body and not reason:
            self._tree[path] = {name: v for name, v in body.items() if name != _NEXT}
        return reason

    async def _fetch(self, path: str) -> tuple[Json, str]:
        """Return the object at a path, or an empty one and the reason."""
        if self._silent >= _SILENT_MAX:
            return {}, "the BMC does not answer any more"
        if self._bytes > BYTES_MAX:
            return {}, f"more than {BYTES_MAX} bytes"
        try:
            reply = await self._transport.request(self._address, Call("GET", path))
            self._silent = 0
            self._bytes += len(reply.body)
            self._refused += reply.status in (401, 403)
            if reply.status != 200:
                return {}, f"HTTP status {reply.status}"
            body = read_document(reply)
        except PortError as error:
            self._failure = error
            self._silent += isinstance(error, Unreachable)
            return {}, f"{error.reason}: {error}"[:200]
        if not isinstance(body, dict) or not body:
            return {}, "the answer is not a JSON object"
        if _is_deep(body, DEPTH_MAX):
            return {}, f"nested more than {DEPTH_MAX} levels deep"
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return {}, "the answer holds text that is not Unicode"
        return body, ""


def _list_members(page: Json) -> list[Any]:
    members = page.get("Members")
    return members if isinstance(members, list) else []


def _find_next(body: Json) -> str | None:
    path = path_of(body.get(_NEXT))
    return path if path is not None and path.startswith(f"{ROOT}/") else None


def find_links(body: Any) -> Iterator[str]:
    """Return the paths that a resource links to, without those that are left out."""
    if isinstance(body, Mapping):
        for name, value in body.items():
            if name == "@odata.id":
                path = (path_of(value) or "").rstrip("/")
                if path.startswith(f"{ROOT}/") and not _LEFT_OUT.search(path):
                    yield path
            else:
                yield from find_links(value)
    elif isinstance(body, list):
        for one in body:
            yield from find_links(one)


def _is_deep(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list):
        return False
    return levels == 0 or any(_is_deep(one, levels - 1) for one in inner)


def _find_model(tree: Mapping[str, Json]) -> str | None:
    systems = (body for path, body in tree.items() if re.search(r"/Systems/[^/]+$", path))
    return next((model for body in systems if (model := text(body.get("Model")))), None)
