"""Extended information of a service, judged by message keys, never by the text of a message.

Registries come in two- and three-part versions ("Update.1.0.X", "TaskEvent.1.0.3.X"), information
as a list or a single object, and ids without a registry (facts: redfish 1.1, E13).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from provisioner.adapters.redfish.parsing import Json, as_object, at, objects, path_of, text
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Malformed, Reply
from provisioner.ports.reply_words import plain_text

_MESSAGES_MAX = 256  # of one task; a whole tray's update has under 100
_BUSY = re.compile(
    r"InProgress|InvalidOperationForSystemState|DuringSystemPOST|TemporarilyUnavailable"
    r"|ResourceInUse|NotReady|SessionLimitExceeded"
)
_INFO = "@Message.ExtendedInfo"  # after a property's name: the messages about that property
_TASK = re.compile(r"^/[^\s?#]*/(Tasks|TaskMonitors|Jobs)/[^/\s]+(/Monitor)?$")
# activation methods as PLDM names them in `Resolution`, weakest first (facts: redfish 3.1)
_AWAITED = (
    (re.compile(r"system reboot", re.IGNORECASE), Activation.WARM_REBOOT),
    (re.compile(r"\bDC power cycle", re.IGNORECASE), Activation.COLD_BOOT),
    (re.compile(r"\bAC power cycle", re.IGNORECASE), Activation.AC_CYCLE),
)


class Message(Record):
    """One message. `key` is the message's name without its registry."""

    key: str
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
                said=text(item.get("Message")) or "",
                args=tuple(args),
                severity=text(item.get("MessageSeverity") or item.get("Severity")) or "",
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
        return as_object(reply.json()) if reply.body.strip() else {}
    except Malformed:
        return {}


def collect_messages(body: Json) -> tuple[Message, ...]:
    """All messages of an answer, wherever vendors put them."""
    places = (
        at(body, "error", "@Message.ExtendedInfo"),
        body.get("@Message.ExtendedInfo"),
        at(body, "Accepted", "@Message.ExtendedInfo"),  # Supermicro
        body.get("Messages"),  # DGX
        *[body[key] for key in body if len(key) > len(_INFO) and key.endswith(_INFO)][:16],
    )
    return tuple(m for place in places if place is not None for m in read_messages(place))


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
        detail=f"HTTP status {reply.status}: {message[:300] or 'no message'}",
        unblock=unblock,
    )


def _reason(status: int, entries: tuple[Message, ...]) -> Reason:
    if status == 503 or any(_BUSY.search(m.key) for m in entries):
        return Reason.BUSY
    if any("License" in m.key for m in entries):  # a 403 of this kind is not about who asks (U18)
        return Reason.NOT_OFFERED
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
    in the body, with a `Location` that is a monitor without a TaskState (facts: redfish 3.1-3.4).
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
