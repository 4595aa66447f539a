"""A Slack workspace with one channel, as Slack publishes its Web API: for tests.

source: docs.slack.dev/reference/methods (chat.postMessage, conversations.history, .replies: the
arguments, `ok` and `error` in an answer of status 200, `has_more`, metadata only if asked for;
history has no answers of threads), docs.slack.dev/reference/block-kit (header 150 characters of
plain text, section 3,000, 50 blocks a message, block texts never empty), and the limits in Slack's
own slack_sdk 3.48.0 (models/blocks). Read on 2026-11-28.
"""

from __future__ import annotations

from typing import Any

import jsonschema
from aiohttp import web
from vendors import Vendor


def _text(most: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "type": {"enum": ["plain_text"]},
            "text": {"type": "string", "minLength": 1, "maxLength": most},
            "emoji": {"type": "boolean"},
        },
        "required": ["type", "text"],
        "additionalProperties": False,
    }


def _block(kind: str, most: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"enum": [kind]}, "text": _text(most)},
        "required": ["type", "text"],
        "additionalProperties": False,
    }


POST = {
    "type": "object",
    "properties": {
        "channel": {"type": "string", "pattern": "^[CG][A-Z0-9]+$"},
        "text": {"type": "string", "minLength": 1, "maxLength": 40_000},
        "blocks": {
            "type": "array",
            "maxItems": 50,
            "items": {"oneOf": [_block("header", 150), _block("section", 3000)]},
        },
        "metadata": {
            "type": "object",
            "properties": {
                "event_type": {"type": "string", "minLength": 1},
                "event_payload": {"type": "object"},
            },
            "required": ["event_type", "event_payload"],
            "additionalProperties": False,
        },
        "thread_ts": {"type": "string", "pattern": r"^\d+\.\d+$"},
        "unfurl_links": {"type": "boolean"},
    },
    "required": ["channel", "text"],
    "additionalProperties": False,  # ours: a misspelt argument would be ignored there
}
BLOCKS_MAX = 13_000  # characters of all blocks: github.com/slackapi/bolt-js/issues/2509


class SlackWorkspace(Vendor):
    """One channel; messages of other apps are in it too."""

    token = "xoxb-of-the-site"
    channel = "C0123456789"

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = [{"type": "message", "ts": "1.000", "text": "hello"}]
        self.error = ""  # answered to a post instead, if set

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/chat.postMessage", self._post),
            web.get("/api/conversations.history", self._history),
            web.get("/api/conversations.replies", self._replies),
        ]

    def threads(self) -> list[list[dict[str, Any]]]:
        """Every message with a header, each with its answers."""
        tops = [m for m in self.messages if "thread_ts" not in m and "blocks" in m]
        return [[t, *(m for m in self.messages if m.get("thread_ts") == t["ts"])] for t in tops]

    def _refuse(self, request: web.Request, channel: object) -> str:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return "invalid_auth"
        return "" if channel == self.channel else "channel_not_found"

    async def _post(self, request: web.Request) -> web.Response:
        post = await request.json()
        error = self.error or self._refuse(request, post.get("channel"))
        try:
            jsonschema.validate(post, POST)
        except jsonschema.ValidationError:
            error = error or "invalid_blocks"
        if sum(len(b["text"]["text"]) for b in post.get("blocks", ())) > BLOCKS_MAX:
            error = error or "msg_blocks_too_long"
        if error:
            return web.json_response({"ok": False, "error": error})
        ts = f"1700000000.{len(self.messages):06}"
        self.messages.append({"type": "message", "ts": ts} | post)
        return web.json_response({"ok": True, "channel": self.channel, "ts": ts})

    async def _history(self, request: web.Request) -> web.Response:
        return self._list(request, [m for m in self.messages if "thread_ts" not in m])

    async def _replies(self, request: web.Request) -> web.Response:
        ts = request.query["ts"]
        return self._list(
            request, [m for m in self.messages if ts in (m["ts"], m.get("thread_ts"))]
        )

    def _list(self, request: web.Request, messages: list[dict[str, Any]]) -> web.Response:
        if error := self._refuse(request, request.query["channel"]):
            return web.json_response({"ok": False, "error": error})
        newest = list(reversed(messages))
        limit = int(request.query["limit"])
        shown = [dict(m) for m in newest[:limit]]
        if request.query.get("include_all_metadata") != "true":
            for message in shown:
                message.pop("metadata", None)
        more = len(newest) > limit
        return web.json_response({"ok": True, "messages": shown, "has_more": more})
