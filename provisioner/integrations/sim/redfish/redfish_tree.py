"""The resources of one simulated Redfish service, and the methods that each path allows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

# ------------------------------------------------------------------------------
# Answers of a simulated BMC, and the Redfish errors of DSP0266 clause 8.6.


Json = dict[str, Any]
Listen = Callable[[Callable[[bytes], None]], Callable[[], None]]
"""Starts to send a stream's bytes to a receiver; the returned function ends it."""


class Answer(NamedTuple):
    """One HTTP answer. Faults may change it before it is sent.

    `status` 0 drops the connection without an answer; `delay_s` is simulated seconds before the
    answer; `cut` is the number of body bytes after which the connection breaks (-1: none).
    With `stream` the answer does not end.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    delay_s: float = 0.0
    cut: int = -1
    stream: Listen | None = None


GONE = Answer(0, {})
JSON_TYPE = "application/json;charset=utf-8"
_SEVERITY = {2: "OK", 4: "Critical", 5: "Critical"}


def dump_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def make_answer(status: int, value: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a JSON body, or none."""
    sent = dict(headers or {})
    if value is None:
        return Answer(status, sent)
    sent.setdefault("Content-Type", JSON_TYPE)
    return Answer(status, sent, dump_json(value))


def make_message(key: str, text: str, args: Sequence[str] = (), **more: Any) -> Json:
    """One Message object. `key` is the complete one, such as "Base.1.18.Success"."""
    return {
        "@odata.type": "#Message.v1_1_1.Message",
        "MessageId": key,
        "Message": text,
        "MessageArgs": list(args),
        "MessageSeverity": more.pop("severity", "OK"),
        "Resolution": more.pop("resolution", "None."),
        **more,
    }


BASE_TEXTS = {  # the subset of the Base registry that is used here
    "Success": "The request completed successfully.",
    "GeneralError": "A general error has occurred. See Resolution for information on how to "
    "resolve the error.",
    "ResourceMissingAtURI": "The resource at the URI '%1' was not found.",
    "OperationNotAllowed": "The HTTP method is not allowed on this resource.",
    "ResourceAtUriUnauthorized": "While accessing the resource at '%1', the service received an "
    "authorization error '%2'.",
    "NoValidSession": "There is no valid session established with the implementation.",
    "PasswordChangeRequired": "The password provided for this account must be changed before "
    "access is granted.  PATCH the Password property for this account located at the target URI "
    "'%1' to complete this process.",
    "InsufficientPrivilege": "There are insufficient privileges for the account or credentials "
    "associated with the current session to perform the requested operation.",
    "SessionLimitExceeded": "The session establishment failed due to the number of simultaneous "
    "sessions exceeding the limit of the implementation.",
    "EventSubscriptionLimitExceeded": "The event subscription failed due to the number of "
    "simultaneous subscriptions exceeding the limit of the implementation.",
    "MalformedJSON": "The request body submitted was malformed JSON and could not be parsed by "
    "the receiving service.",
    "PropertyUnknown": "The property %1 is not in the list of valid properties for the resource.",
    "PropertyNotWritable": "The property %1 is a read-only property and cannot be assigned a "
    "value.",
    "PropertyMissing": "The property %1 is a required property and must be included in the "
    "request.",
    "PropertyValueNotInList": "The value '%1' for the property %2 is not in the list of "
    "acceptable values.",
    "PropertyValueTypeError": "The value '%1' for the property %2 is not a type that the "
    "property can accept.",
    "PropertyValueFormatError": "The value '%1' for the property %2 is not a format that the "
    "property can accept.",
    "ActionParameterMissing": "The action %1 requires the parameter %2 to be present in the "
    "request body.",
    "ActionParameterValueNotInList": "The value '%1' for the parameter %2 in the action %3 is "
    "not in the list of acceptable values.",
    "ActionParameterNotSupported": "The parameter %1 for the action %2 is not supported on the "
    "target resource.",
    "CreateFailedMissingReqProperties": "The create operation failed because the required "
    "property %1 was missing from the request.",
    "PreconditionFailed": "The ETag supplied did not match the ETag required to change this "
    "resource.",
    "PreconditionRequired": "A precondition header or annotation is required to change this "
    "resource.",
    "QueryNotSupported": "Querying is not supported by the implementation.",
    "QueryParameterValueTypeError": "The value '%1' for the query parameter %2 is not a type "
    "that the parameter can accept.",
    "QueryParameterOutOfRange": "The value '%1' for the query parameter %2 is out of range %3.",
    "ServiceTemporarilyUnavailable": "The service is temporarily unavailable.  Retry in %1 "
    "seconds.",
    "ResourceInUse": "The change to the requested resource failed because the resource is in use "
    "or in transition.",
    "ResourceAlreadyExists": "The requested resource of type %1 with the property %2 with the "
    "value '%3' already exists.",
    "UnsupportedMediaType": "The media type of the request is not supported.",
    "PayloadTooLarge": "The supplied payload exceeds the maximum size supported by the service.",
    "HeaderInvalid": "Header '%1' is invalid.",
    "InternalError": "The request failed due to an internal service error.  The service is still "
    "operational.",
    "ActionNotSupported": "The action %1 is not supported by the resource.",
    "ChassisPowerStateOffRequired": "The Chassis with Id '%1' requires to be powered off to "
    "perform this request.",
    "UpdateInProgress": "An update is in progress.",
}


def make_base_message(
    key: str, *args: str, resolution: str = "None.", severity: str = "Critical"
) -> Json:
    """A message of the Base registry with its arguments filled in."""
    text = BASE_TEXTS[key]
    for n, arg in enumerate(args, 1):
        text = text.replace(f"%{n}", arg)
    registry = "Update.1.0" if key == "UpdateInProgress" else "Base.1.18"
    return make_message(f"{registry}.{key}", text, args, severity=severity, resolution=resolution)


def make_error(
    status: int,
    key: str,
    *args: str,
    headers: Mapping[str, str] | None = None,
    resolution: str = "None.",
    prop: str = "",
) -> Answer:
    """An error answer with `@Message.ExtendedInfo`; `prop` names the property at fault."""
    info = make_base_message(key, *args, resolution=resolution)
    if prop:
        info["RelatedProperties"] = [f"#/{prop}"]
    body = {
        "error": {
            "code": info["MessageId"],
            "message": info["Message"],
            "@Message.ExtendedInfo": [info],
        }
    }
    return make_answer(status, body, headers)


def answer_done(status: int = 200) -> Answer:
    """The answer of an action that succeeded."""
    return make_answer(
        status,
        {
            "error": {
                "code": "Base.1.18.Success",
                "message": BASE_TEXTS["Success"],
                "@Message.ExtendedInfo": [make_base_message("Success", severity="OK")],
            }
        },
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
