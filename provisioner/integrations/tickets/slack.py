"""Tickets as threads of a Slack channel: the Web API, with texts in blocks of Block Kit.

Sources: docs.slack.dev/reference (chat.postMessage, conversations.history and .replies, Block Kit:
header 150 characters, section 3,000, 50 blocks a message), read 2026-11. A ticket is one message of
our app, later messages are answers in its thread. Each has our ids as message metadata, so that a
message whose answer was lost is searched for before it is sent again. An incoming webhook would
return no id of its message, and could have neither thread nor search.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yarl import URL

from provisioner.integrations.tickets.exchange import DeskExchange
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.ports import LoginRefused, Malformed, Secret, Unreachable
from provisioner.ports.tickets import Looked, TicketRef

API = "https://slack.com/api"
EVENT = "provisioner_ticket"
HEADER_MAX = 150
SECTION_MAX = 3000
SECTIONS_MAX = 3  # beyond some 13,000 characters Slack refuses all blocks of a message together
HISTORY_MAX = 200  # newest messages that are searched
TS_MAX = 40
LOGIN_ERRORS = frozenset(
    {
        "not_authed",
        "invalid_auth",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "missing_scope",
        "no_permission",
    }
)
BUSY_ERRORS = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
SERVER_ERRORS = frozenset({"internal_error", "fatal_error", "service_unavailable"})


class Slack:
    """`ports.TicketSystem`. To be used in one event loop, and closed there."""

    name = "slack"

    def __init__(
        self, url: str, channel: str, token: Secret, ca_file: Path | None = None, pin: str = ""
    ) -> None:
        self._api = URL(url or API)
        self._channel = channel
        self._token = token
        self._exchange = DeskExchange(ca_file, pin)

    async def look(self, key: str) -> Looked:
        """Search the channel's newest messages, and the thread that the key is of."""
        messages, complete = await self._read("conversations.history", {})
        for kept in messages:
            if kept["id"] == key:
                return Looked(certain=True, ref=TicketRef(id=kept["ts"]))
        thread = next((m for m in messages if key.startswith(f"{m['key']}/")), None)
        if thread is None:
            return Looked(certain=complete)
        answers, complete = await self._read("conversations.replies", {"ts": thread["ts"]})
        if any(answer["id"] == key for answer in answers):
            return Looked(certain=True, ref=TicketRef(id=thread["ts"]))
        return Looked(certain=complete)

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """Post the message, in the thread of its ticket. The archive is named by its digest."""
        thread = message.ticket
        if not thread and message.event != "open":  # the answer of the first message was lost
            messages, _ = await self._read("conversations.history", {})
            thread = next((m["ts"] for m in messages if m["id"] == message.key), "")
        if not thread and message.event == "closed":
            return TicketRef(id=message.key)  # there is nothing to close
        post = make_post(message, self._channel, thread)
        content = json.dumps(post, sort_keys=True, separators=(",", ":")).encode()
        target = self._api / "chat.postMessage"
        ts = read_ts(await self._ask("POST", target, content))
        return TicketRef(id=thread or ts)

    async def close(self) -> None:
        """Close the connection."""
        await self._exchange.close()

    async def _read(
        self, method: str, more: Mapping[str, str]
    ) -> tuple[list[dict[str, str]], bool]:
        """Return our messages (`id`, `key`, `ts`), and whether there are no older ones."""
        query = {"channel": self._channel, "limit": str(HISTORY_MAX), **more}
        target = (self._api / method).with_query({**query, "include_all_metadata": "true"})
        return read_own_messages(await self._ask("GET", target, b""))

    async def _ask(self, method: str, url: URL, content: bytes) -> bytes:
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token.reveal()}"}
        if content:
            headers["Content-Type"] = "application/json; charset=utf-8"
        status, body = await self._exchange.request(method, url, headers, content)
        check_answer(status, body, writes=method == "POST")
        return body


def make_post(message: TicketMessage, channel: str, thread: str) -> dict[str, Any]:
    """Return the body of chat.postMessage. Texts are plain: a device's words are no markup.

    `thread`: the id of the message that this one answers to; "": none.
    """
    text = message.text or message.work
    whole = text[: SECTION_MAX * SECTIONS_MAX]
    sections = [whole[at : at + SECTION_MAX] for at in range(0, len(whole), SECTION_MAX)]
    title = " ".join(message.title.split()) or message.key
    post: dict[str, Any] = {
        "channel": channel,
        "text": _escape(title),  # for notifications
        "blocks": [
            {"type": "header", "text": _plain(title[:HEADER_MAX])},
            *({"type": "section", "text": _plain(part)} for part in sections if part.strip()),
        ],
        "metadata": {
            "event_type": EVENT,
            "event_payload": {"id": message.id, "key": message.key},
        },
        "unfurl_links": False,
    }
    if thread:
        post["thread_ts"] = thread
    return post


def check_answer(status: int, body: bytes, *, writes: bool) -> None:
    """Check that Slack did it: a refusal has status 200 too. Raises PortError."""
    answer = _read_object(body) if status == 200 else {}
    if answer.get("ok") is True:
        return
    word = answer.get("error")
    reason = word if isinstance(word, str) and word.replace("_", "").isalnum() else "no reason"
    detail = f"Slack answered with status {status}: {reason[:80]}"
    if reason in LOGIN_ERRORS:
        raise LoginRefused(detail)
    if reason in BUSY_ERRORS or reason in SERVER_ERRORS:
        raise Unreachable(detail, maybe_executed=writes and reason in SERVER_ERRORS)
    raise Malformed(detail)


def read_ts(body: bytes) -> str:
    """Return the id of a posted message. Raises Malformed."""
    ts = _read_object(body).get("ts")
    if not _is_ts(ts):
        raise Malformed("Slack's answer has no ts of the message")
    return str(ts)


def read_own_messages(body: bytes) -> tuple[list[dict[str, str]], bool]:
    """Return our messages of a list (`id`, `key`, `ts`), and whether the list is complete."""
    answer = _read_object(body)
    messages = answer.get("messages")
    if not isinstance(messages, list):
        raise Malformed("Slack's answer has no messages")
    own = []
    for message in messages:
        metadata = message.get("metadata") if isinstance(message, dict) else None
        if not isinstance(metadata, dict) or metadata.get("event_type") != EVENT:
            continue
        payload = metadata.get("event_payload")
        names = payload if isinstance(payload, dict) else {}
        kept = {"id": names.get("id"), "key": names.get("key"), "ts": message.get("ts")}
        if all(isinstance(v, str) and v for v in kept.values()) and _is_ts(kept["ts"]):
            own.append({name: str(value) for name, value in kept.items()})
    return own, answer.get("has_more") is not True


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Malformed("Slack's answer is no JSON object")
    return document


def _is_ts(value: object) -> bool:
    """Return whether it is a message's id: digits, a point, digits."""
    text = value if isinstance(value, str) else ""
    return text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= TS_MAX


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _escape(text: str) -> str:
    """Return a text without Slack's control characters (docs.slack.dev: escaping text)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
