"""Extended information of a service, judged by message keys, never by the text of a message.

Registries come in two- and three-part versions ("Update.1.0.X", "TaskEvent.1.0.3.X"), information
as a list or a single object, and ids without a registry (docs/sources/redfish.md#message-ids).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    objects,
    parse_fields,
    path_of,
    text,
)
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Malformed, Reply
from provisioner.ports.wire import plain_text
from provisioner.quirks.message_ids import Meaning, find_meaning

_MESSAGES_MAX = 256  # of one task; a whole tray's update has under 100
_BUSY = frozenset({Meaning.NOT_READY, Meaning.PENDING_JOB})
_INFO = "@Message.ExtendedInfo"  # after a property's name: the messages about that property
_TASK = re.compile(r"^/[^\s?#]*/(Tasks|TaskMonitors|Jobs)/[^/\s]+(/Monitor)?$")
# activation methods as PLDM names them in `Resolution`, weakest first
# (docs/sources/redfish.md#activation-words)
_AWAITED = (
    (re.compile(r"system reboot", re.IGNORECASE), Activation.WARM_REBOOT),
    (re.compile(r"\bDC power cycle", re.IGNORECASE), Activation.COLD_BOOT),
    (re.compile(r"\bAC power cycle", re.IGNORECASE), Activation.AC_CYCLE),
)

LEFT_OUT_MAX = 4  # repetitions of one request: services name one refused property at a time
# statuses with which services refuse a property; bmcweb answers 403 for one that is read-only
NAMING = frozenset({400, 403, 405, 409, 422})
NOT_NOW = frozenset({408, 425, 429, 503})  # RFC 9110, 8470, 6585: the same request is good later
Path = tuple[str, ...]
_DEPTH_MAX = 5
_LEAVES_MAX = 512  # a BIOS has some 300 attributes
_NAMING_MAX = 32  # messages of one list of a refusal
_NAMES_MAX = 16
_NAME_MAX = 256


class Message(Record):
    """One message. `key` is the message's name without its registry."""

    key: str
    meaning: Meaning | None = None
    said: str = ""
    args: tuple[str, ...] = ()
    severity: str = ""
    resolution: str = ""


def read_messages(value: Any) -> tuple[Message, ...]:
    """Messages out of a list, or a single object, of extended information."""
    entries = []
    for item in objects(value, _MESSAGES_MAX):
        ident = text(item.get("MessageId")) or ""
        raw = item.get("MessageArgs")
        args = [text(a) or "" for a in raw[:16]] if isinstance(raw, list) else []
        entries.append(
            Message(
                key=ident.rsplit(".", 1)[-1],
                meaning=find_meaning(ident),
                said=text(item.get("Message")) or "",
                args=tuple(args),
                severity=(
                    text(item.get("MessageSeverity") or item.get("Severity")) or ""
                ).capitalize(),
                resolution=_resolution(item),
            )
        )
    return tuple(entries)


def _resolution(item: Json) -> str:
    resolution = text(item.get("Resolution")) or ""
    # DSP0268 defines "None." for messages without a resolution
    return "" if resolution.strip(" .").lower() == "none" else resolution


def body_of(reply: Reply) -> Json:
    """The answer's JSON object; empty when there is none, or when it is nonsense."""
    try:
        return as_object(parse_fields(reply.body)[0]) if reply.body.strip() else {}
    except (ValueError, RecursionError):
        return {}


def read_document(reply: Reply) -> Any:
    """Return an answer's JSON without its damaged fields; raise `Malformed` if it is none."""
    try:
        return parse_fields(reply.body)[0]
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from None


def collect_messages(body: Json) -> tuple[Message, ...]:
    """All messages of an answer, wherever vendors put them."""
    places = (
        at(body, "error", "@Message.ExtendedInfo"),
        body.get("@Message.ExtendedInfo"),
        at(body, "Accepted", "@Message.ExtendedInfo"),  # Supermicro
        body.get("Messages"),  # DGX
        *[body[key] for key in body if len(key) > len(_INFO) and key.endswith(_INFO)][:16],
    )
    found = tuple(m for place in places if place is not None for m in read_messages(place))
    code = text(at(body, "error", "code"))  # all that some services give (DSP0266, 8.6)
    return found or (read_messages({"MessageId": code}) if code else ())


_INTERNAL = "InternalError"  # Base registry: the service has a fault
_NO_ERROR = frozenset({"Success", "NoOperation", "Created", "Accepted"})  # DSP8011, Base registry
_REFUSING = frozenset(
    {
        Meaning.NOT_READY,
        Meaning.CHANGE_PASSWORD,
        Meaning.LOCKED,
        Meaning.LICENCE,
        Meaning.PENDING_JOB,
    }
)


def find_error_inside(body: Json) -> tuple[Message, ...] | None:
    """Return what the `error` in an answer of status 200 says; None: there is none in it.

    () is an error that says nothing. DSP0266, 8.6 has errors in answers of 4xx and 5xx only. See
    `find_failed_part` for what stands in other places.
    """
    if not as_object(body.get("error")):
        return None
    listed = collect_messages({"error": body["error"]})
    said = tuple(m for m in listed if m.key not in _NO_ERROR)
    return None if listed and not said else said


def find_failed_part(body: Json) -> tuple[Message, ...] | None:
    """Return what an answer to a read says of a part that it does not have; None: nothing.

    DSP0266, "Extended information", puts it beside the whole (`@Message.ExtendedInfo`) or beside
    one property (`Members@Message.ExtendedInfo`). Advice about what was given stands there too.
    """
    told = {k: v for k, v in body.items() if k.endswith(_INFO)}
    said = collect_messages(told) if told else ()
    failed = tuple(
        m for m in said if m.severity == "Critical" or m.key == _INTERNAL or m.meaning in _REFUSING
    )
    return failed or None


def correct_status(reply: Reply, *, read: bool) -> Reply:
    """Return the answer with the status that its body calls for: 500 for a 2xx that is an error.

    A read is one if nothing stands beside its error (openbmc/bmcweb#75), and a write if a message
    says that it was refused: iLO puts what it has to say about a success into an `error` too
    (NVIDIA/libredfish, hpe.rs: SystemResetRequired). One that names a refused property may have
    been carried out for the rest, and is looked into by `find_not_taken`.
    """
    if not 200 <= reply.status < 300:
        return reply
    body = body_of(reply)
    said = find_error_inside(body)
    if said is None:
        return reply
    if read:
        is_error = all(key.startswith("@") for key in body if key != "error")
    else:
        is_error = any(
            m.meaning in _REFUSING or (m.severity == "Critical" and m.meaning is None) for m in said
        )
    return replace(reply, status=500, stated=reply.status) if is_error else reply


def read_refusal(reply: Reply, subject: str, unblock: str, hidden: str = "") -> Blocker:
    """A "no" with its reason: busy now, never offered, not allowed, or simply refused.

    `hidden` is taken out of the words: services repeat the password that they refuse (bmcweb).
    """
    body = body_of(reply)
    entries = collect_messages(body)
    message = "; ".join(dict.fromkeys(m.said or m.key for m in entries if m.said or m.key))
    message = message or text(at(body, "error", "message")) or ("" if body else plain_text(reply))
    message = message.replace(hidden, "(hidden)") if hidden else message
    return Blocker(
        reason=_reason(reply.status, entries),
        subject=subject,
        detail=f"{_show_status(reply)}: {message[:300] or 'no message'}",
        unblock=unblock,
    )


def _show_status(reply: Reply) -> str:
    if reply.stated:
        return f"HTTP status {reply.stated} with an error in its body"
    return f"HTTP status {reply.status}"


def _reason(status: int, entries: tuple[Message, ...]) -> Reason:
    meanings = {m.meaning for m in entries}
    if status in NOT_NOW or meanings & _BUSY:
        return Reason.BUSY
    if Meaning.LICENCE in meanings:  # not about who asks: docs/sources/bmc-faults.md#u18
        return Reason.NOT_OFFERED
    if Meaning.LOCKED in meanings:
        return Reason.REFUSED
    by_status = {
        401: Reason.LOGIN_REFUSED,
        403: Reason.LOGIN_REFUSED,
        404: Reason.NOT_OFFERED,
        405: Reason.NOT_OFFERED,
        501: Reason.NOT_OFFERED,
        409: Reason.BUSY,
        412: Reason.PRECONDITION,
        413: Reason.TOO_LARGE,
        428: Reason.PRECONDITION,
    }
    return by_status.get(status, Reason.REFUSED)


def task_paths(reply: Reply) -> Iterator[str]:
    """Task addresses in an answer, best first: body, message arguments, `Location`.

    DGX names the task in a message only, Supermicro under `Accepted`, Dell in `Location`, OpenBMC
    in the body, with a `Location` that is a monitor without a TaskState
    (docs/sources/redfish.md#openbmc-update).
    """
    body = body_of(reply)
    if (text(body.get("@odata.type")) or "").startswith(("#Task.", "#Job.")):
        yield from filter(None, [path_of(body)])
    for message in collect_messages(body):
        yield from (p for a in message.args if (p := path_of(a)) and _TASK.match(p))
    location = path_of(reply.headers.get("location", ""))
    if location is not None:
        yield location
    own = path_of(body)
    if own is not None and _TASK.match(own):
        yield own


def find_awaited(entries: tuple[Message, ...]) -> Activation | None:
    """The strongest activation that any `AwaitToActivate` names by its weakest alternative."""
    needed = None
    order = [activation for _, activation in _AWAITED]
    for message in entries:
        if message.key != "AwaitToActivate":
            continue
        weakest = next((a for p, a in _AWAITED if p.search(message.resolution)), None)
        if weakest is not None and (needed is None or order.index(weakest) > order.index(needed)):
            needed = weakest
    return needed


# Which properties of a request's body are sent, and which are left out after a refusal. A property
# that has its value already is not sent: services refuse one that is read-only also where nothing
# about it would change (community.general#3509, HPE). A refusal that names a property is answered
# once without it, and only where its absence changes nothing of what was asked: it has the value
# already, or it is one that the caller can spare.


def list_leaves(body: Any, at_path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Return each property that holds a value and no further properties, with its path."""
    if isinstance(body, Mapping) and body and len(at_path) < _DEPTH_MAX:
        for name, value in islice(body.items(), _LEAVES_MAX):
            yield from list_leaves(value, (*at_path, str(name)))
    elif at_path:
        yield at_path, body


def is_shown(shown: Json, path: Path, value: Any) -> bool:
    now = at(shown, *path)
    return type(now) is type(value) and now == value


def drop_shown(shown: Json, body: Json, always: Collection[str]) -> dict[str, Any]:
    """Return the body without the properties that the resource has already.

    Those in `always`, and all below them, are sent: some mean something only together.
    """
    return _without(
        body,
        {
            path
            for path, value in list_leaves(body)
            if is_shown(shown, path, value) and not set(path) & set(always)
        },
    )


def leave_out(
    reply: Reply, body: Json, shown: Json, spare: Collection[str]
) -> dict[str, Any] | None:
    """Return the body for one more request after this refusal; None: it is final."""
    if reply.status not in NAMING:
        return None
    dropped = {
        path
        for path in find_named(reply, body)
        if path[-1] in spare or is_shown(shown, path, at(body, *path))
    }
    return _without(body, dropped) if dropped else None


def add_demanded(reply: Reply, body: Json, offered: Json) -> dict[str, Any] | None:
    """Return the body with the properties of `offered` that this refusal demands; else None."""
    if reply.status not in NAMING:
        return None
    wanted = {path[0] for path in find_named(reply, offered) if path[0] not in body}
    return {**body, **{name: offered[name] for name in sorted(wanted)}} if wanted else None


def find_named(reply: Reply, body: Json) -> set[Path]:
    """Return the properties of the body that the answer's messages name."""
    named: set[Path] = set()
    leaves = [path for path, _ in list_leaves(body)]
    for holder, message in _list_messages(body_of(reply)):
        named |= _match(leaves, holder, message)
    return named


def find_not_taken(reply: Reply, body: Json) -> set[Path]:
    """Return the properties that an answer of a status 2xx names as not taken."""
    leaves = [path for path, _ in list_leaves(body)]
    named: set[Path] = set()
    for holder, message in _list_messages(body_of(reply)):
        ident = message.get("MessageId")
        if isinstance(ident, str) and find_meaning(ident) is Meaning.REFUSED_PROPERTY:
            named |= _match(leaves, holder, message)
    return named


def _match(leaves: Sequence[Path], holder: str, message: Json) -> set[Path]:
    """Match by what points at a property, else by the words of the message."""
    pointers: list[Any] = [holder] if holder else []
    for key in ("RelatedProperties", "MessageArgs"):
        listed = message.get(key)
        pointers += listed[:_NAMES_MAX] if isinstance(listed, list) else [listed]
    texts = [p for p in pointers if isinstance(p, str) and 0 < len(p) <= _NAME_MAX]
    matched = {path for path in leaves for text in texts if _points_at(text, path)}
    words = message.get("Message")
    if matched or not isinstance(words, str):
        return matched
    spoken = {word.lower() for word in re.findall(r"[\w@.]{5,}(?<!\.)", words[:1024])}
    spoken |= {word.rsplit(".", 1)[-1] for word in spoken}
    return {path for path in leaves if path[-1].lower() in spoken}


def _points_at(pointer: str, path: Path) -> bool:
    """Match a name, a JSON pointer ("#/Boot/BootSourceOverrideMode") or a dotted path."""
    pointer = re.sub(r"(/\d+|\[\d+\])([/.].*)?$", "", pointer.rsplit("#", 1)[-1].strip(" '\"`"))
    tails = [path[n:] for n in range(len(path))]
    written = pointer.strip("/'\"").lower()
    return any(written in ("/".join(tail).lower(), ".".join(tail).lower()) for tail in tails)


def _list_messages(body: Json) -> Iterator[tuple[str, Json]]:
    places: list[tuple[str, Any]] = [
        ("", at(body, "error", _INFO)),
        ("", at(body, "Accepted", _INFO)),
    ]
    for prefix, level in (("", body), *((f"{k}/", as_object(v)) for k, v in body.items())):
        for key, value in islice(level.items(), _LEAVES_MAX):
            if key.endswith(_INFO):
                name = key.removesuffix(_INFO)
                places.append((f"{prefix}{name}" if name else "", value))
    for holder, listed in places[:_LEAVES_MAX]:
        for message in objects(listed if listed is not None else [], _NAMING_MAX):
            yield holder, message


def _without(body: Json, paths: Collection[Path]) -> dict[str, Any]:
    """Return the body without these, and without objects that they leave empty."""
    result: dict[str, Any] = {}
    for name, value in body.items():
        below = {path[1:] for path in paths if path[0] == name}
        if () in below:
            continue
        if below and isinstance(value, Mapping):
            if (rest := _without(value, below)) != {}:
                result[name] = rest
        else:
            result[name] = value
    return result
