"""An agent that answers commands by a script, and keeps their list as an agent does."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from hostile_agent import TOKEN


class Scripted:
    """Answers `POST` by a script, and keeps a list as an agent does."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.listed: list[dict[str, Any]] = []
        self.posts = 0
        self.seen: list[str] = []

    def entry(self, status: str = "SUCCEEDED", **more: Any) -> dict[str, Any]:
        made = {
            "id": f"id{len(self.listed)}",
            "command_name": "sync",
            "command_status": status,
            "command_error": None,
            "command_result": None,
            **more,
        }
        self.listed.append(made)
        return made

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.path}")
        if request.query.get("agent_token") != TOKEN:
            return web.json_response({"faultstring": "Token invalid."}, status=401)
        if request.method == "POST":
            self.posts += 1
            answer = self.script.pop(0)(self)
            if answer is None:  # carried out, and the answer is lost
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return answer
        if request.path == "/v1/commands/":
            return web.json_response({"commands": self.listed})
        found = [e for e in self.listed if e["id"] == request.path.rpartition("/")[2]]
        return web.json_response(found[0] if found else {}, status=200 if found else 404)


def taken(agent: Scripted) -> web.Response:
    return web.json_response(agent.entry())


def taken_and_lost(agent: Scripted) -> None:
    agent.entry()


def lost(_agent: Scripted) -> None:
    return None


def busy(_agent: Scripted) -> web.Response:
    return web.json_response({"faultstring": "Agent is busy: executing command x"}, status=409)


def broken(_agent: Scripted) -> web.Response:
    return web.Response(status=500, text="<html>")
