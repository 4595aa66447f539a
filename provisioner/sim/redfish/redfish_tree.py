"""The resources of one simulated Redfish service, and the methods that each path allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from provisioner.sim.redfish.redfish_answers import (
    Answer,
    Json,
    make_answer,
    make_error,
)

# ------------------------------------------------------------------------------
# Serves a recorded BMC: reads are answered from the recording, writes are refused.
#
# A recording shows one moment, and nothing that a write would change; so any write but a login is
# HTTP 405. Any user and password log in.


SESSIONS = "/redfish/v1/SessionService/Sessions"


class Replay:
    """The Redfish service of one recording."""

    def __init__(self, tree: Mapping[str, Mapping[str, Any]]) -> None:
        self._tree = tree
        self._sessions = 0

    def handle(
        self,
        method: str,
        path: str,
        _query: Mapping[str, str],
        _headers: Mapping[str, str],
        _body: bytes,
    ) -> Answer:
        """Answer one request; queries are ignored, as a service without them does."""
        place = path.rstrip("/")
        if method in ("GET", "HEAD"):
            body = self._tree.get(place)
            if body is None:
                return make_error(HTTPStatus.NOT_FOUND, "ResourceMissingAtURI", place[:200])
            return make_answer(HTTPStatus.OK, dict(body))
        if method == "POST" and place == SESSIONS:
            self._sessions += 1
            session = f"{SESSIONS}/{self._sessions}"
            headers = {"X-Auth-Token": f"replay-{self._sessions}", "Location": session}
            return make_answer(HTTPStatus.CREATED, {"@odata.id": session}, headers)
        if method == "DELETE" and place.startswith(f"{SESSIONS}/"):
            return make_answer(HTTPStatus.NO_CONTENT)
        return make_error(HTTPStatus.METHOD_NOT_ALLOWED, "OperationNotAllowed")


ROOT = "/redfish/v1"


class Request(NamedTuple):
    """A request with its body parsed if it is JSON (None otherwise)."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lowercase
    body: bytes
    json: Json | None
    account: str  # name of the authenticated account, "" without login
    now: float


Read = Callable[[], Json | None]
Act = Callable[[Request], Answer]
Change = Callable[[Json, Request], Answer | None]


class Resource:
    """One path. `read` returns None while the resource does not exist."""

    __slots__ = ("collection", "delete", "partial", "patch", "post", "read", "refuses", "stream")

    def __init__(
        self,
        read: Read | None = None,
        *,
        patch: Change | None = None,
        post: Act | None = None,
        delete: Act | None = None,
        collection: bool = False,
        partial: bool = True,
    ) -> None:
        self.read = read
        self.patch = patch
        self.post = post
        self.delete = delete
        self.collection = collection
        self.partial = partial  # served already while the BMC is starting
        self.refuses: Callable[[], Answer | None] | None = None  # answers instead of `read`
        self.stream: Act | None = None  # of a path with an endless answer

    def list_methods(self) -> str:
        """The methods for the `Allow` header."""
        methods = ["GET", "HEAD"] if self.read else []
        methods += ["PATCH"] if self.patch else []
        methods += ["POST"] if self.post else []
        methods += ["DELETE"] if self.delete else []
        return ", ".join(methods)


class Tree:
    """Path → resource. A collection's resolver finds members that come and go."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self._resolvers: dict[str, Callable[[str], Resource | None]] = {}
        # of a recorded shape: adds its properties to a member, and finds resources only shown
        self.dress: Callable[[str, Resource], Resource] | None = None
        self.find_more: Callable[[str], Resource | None] | None = None

    def find(self, path: str) -> Resource | None:
        """The resource at a path (without a trailing slash), or None."""
        resource = self.resources.get(path)
        if resource is None and self._resolvers:
            parent, _, name = path.rpartition("/")
            resolve = self._resolvers.get(parent)
            resource = resolve(name) if resolve else None
            if resource is not None and self.dress is not None:
                return self.dress(path, resource)
        if resource is None and self.find_more is not None:
            return self.find_more(path)
        return resource

    def put(self, path: str, resource: Resource) -> None:
        """Add a resource."""
        self.resources[path] = resource

    def add_fixed(self, path: str, value: Json, *, partial: bool = True) -> None:
        """Add a constant resource."""
        value = {"@odata.id": path, **value}
        self.resources[path] = Resource(lambda: value, partial=partial)

    def add_live(
        self, path: str, read: Read, *, patch: Change | None = None, partial: bool = True
    ) -> None:
        """Add a resource that each read builds."""

        def read_whole() -> Json | None:
            value = read()
            return None if value is None else {"@odata.id": path, **value}

        self.resources[path] = Resource(read_whole, patch=patch, partial=partial)

    def add_collection(
        self,
        path: str,
        schema: str,
        members: Callable[[], Sequence[str]],
        *,
        resolve: Callable[[str], Resource | None] | None = None,
        post: Act | None = None,
        partial: bool = True,
    ) -> None:
        """Add a collection; `members` are ids below it or whole paths."""

        def read() -> Json:
            paths = [m if m.startswith("/") else f"{path}/{m}" for m in members()]
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", schema)
            return {
                "@odata.id": path,
                "@odata.type": f"#{schema}.{schema}",
                "Name": name,
                "Members": [{"@odata.id": p} for p in paths],
                "Members@odata.count": len(paths),
            }

        self.resources[path] = Resource(read, post=post, collection=True, partial=partial)
        if resolve:
            self._resolvers[path] = resolve

    def add_action(self, path: str, act: Act) -> None:
        """Add an action target."""
        self.resources[path] = Resource(post=act)


def make_patch_check(
    *allowed: str, read_only: Sequence[str] = ()
) -> Callable[[Json], Answer | None]:
    """A check of a PATCH body that refuses unknown and read-only properties by name.

    Annotations are ignored (DSP0266 clause 7.7.2).
    """

    def check(body: Json) -> Answer | None:
        for name in body:
            if "@" in name or name in allowed:
                continue
            if name in read_only or name in ("Id", "Name", "Description", "Status", "Links"):
                return make_error(400, "PropertyNotWritable", name, prop=name)
            return make_error(400, "PropertyUnknown", name, prop=name)
        return None

    return check


def get_allowed_value(
    request: Request, action: str, name: str, allowed: Sequence[str]
) -> Answer | str:
    """The allowed value of an action's parameter, or the refusal."""
    value = (request.json or {}).get(name)
    if value is None:
        return make_error(400, "ActionParameterMissing", action, name)
    if not isinstance(value, str) or value not in allowed:
        return make_error(400, "ActionParameterValueNotInList", str(value), name, action)
    return value
