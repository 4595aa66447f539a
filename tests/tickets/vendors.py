"""Service desks of vendors, as their published references describe them: for tests.

PagerDuty: the schema of the request is the vendor's own (github.com/PagerDuty/api-schema,
reference/events-v2/openapiv3.json, "Events API V2", version 2.0), without its descriptions; one
alert per `dedup_key`. ServiceNow: "Table API" of the REST API reference, release Australia
(github.com/ServiceNow/ServiceNowDocs, markdown/api-reference/rest-apis/c_TableAPI.md): statuses,
the form of answers, and that an instance ignores conditions on fields that it does not have.
"""

from __future__ import annotations

import base64
from typing import Any

import jsonschema
from aiohttp import web
from aiohttp.test_utils import TestServer

TEXT = {"type": "string"}
EVENT = {
    "type": "object",
    "properties": {
        "payload": {
            "type": "object",
            "properties": {
                "summary": TEXT,
                "timestamp": {"type": "string", "format": "date-time"},
                "severity": {"enum": ["critical", "warning", "error", "info"]},
                "source": TEXT,
                "component": TEXT,
                "group": TEXT,
                "class": TEXT,
                "custom_details": {"type": "object"},
            },
            "required": ["summary", "severity", "source"],
            "additionalProperties": False,  # ours: a misspelt field would be ignored there
        },
        "routing_key": TEXT,
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": TEXT,
        "client": TEXT,
        "client_url": TEXT,
    },
    "required": ["routing_key", "event_action"],
    "additionalProperties": False,  # ours, as above
}


class Vendor:
    """A server that can lose its answers, or be too busy."""

    def __init__(self) -> None:
        self.lose_answers = 0
        self.status = 0  # answered instead, if set
        self.asked: list[tuple[str, str]] = []
        self._server: TestServer | None = None

    def routes(self) -> list[web.RouteDef]:
        raise NotImplementedError

    async def start(self) -> str:
        @web.middleware
        async def fail(request: web.Request, handler: Any) -> web.StreamResponse:
            self.asked.append((request.method, request.path_qs))
            if self.status:
                return web.Response(status=self.status)
            answer = await handler(request)
            if self.lose_answers and request.method != "GET":
                self.lose_answers -= 1
                assert request.transport is not None
                request.transport.close()
            return answer

        app = web.Application(middlewares=[fail])
        app.add_routes(self.routes())
        self._server = TestServer(app)
        await self._server.start_server()
        return str(self._server.make_url("/"))

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.close()


class PagerDutyEvents(Vendor):
    """Events API v2: alerts by their key, with every summary that they had."""

    routing_key = "e93facc04764012d7bfb002500d5d1a6"  # the vendor's example

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[str, list[dict[str, Any]]] = {}
        self.resolved: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v2/enqueue", self._enqueue)]

    async def _enqueue(self, request: web.Request) -> web.Response:
        event = await request.json()
        try:
            jsonschema.validate(event, EVENT)
        except jsonschema.ValidationError as error:
            return web.json_response({"status": "invalid", "message": str(error)}, status=400)
        if event["routing_key"] != self.routing_key:
            return web.json_response({"status": "invalid", "message": "no key"}, status=400)
        key = event["dedup_key"]
        if event["event_action"] == "resolve":
            self.resolved.append(key)
        else:
            self.alerts.setdefault(key, []).append(event["payload"])
        done = {"status": "success", "message": "Event processed", "dedup_key": key}
        return web.json_response(done, status=202)


class ServiceNowTable(Vendor):
    """The Table API of one table; `foreign` are records of other senders."""

    login = ("provisioner", "s3cret-of-the-instance")

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, str]] = []
        self.notes: dict[str, list[str]] = {}
        self.has_correlation = True  # False: the table lacks the field, and ignores conditions

    def routes(self) -> list[web.RouteDef]:
        path = "/api/now/table/incident"
        return [
            web.get(path, self._list),
            web.post(path, self._insert),
            web.patch(path + "/{sys_id}", self._update),
        ]

    def refuse(self, request: web.Request) -> web.Response | None:
        sent = request.headers.get("Authorization", "")
        good = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        error = {"error": {"message": "User Not Authenticated"}, "status": "failure"}
        return None if sent == good else web.json_response(error, status=401)

    async def _list(self, request: web.Request) -> web.Response:
        key = request.query["correlation_id"]
        rows = self.records
        if self.has_correlation:
            rows = [r for r in rows if r["correlation_id"] == key]
        chosen = rows[: int(request.query["sysparm_limit"])]
        return self.refuse(request) or web.json_response({"result": self._shown(request, chosen)})

    async def _insert(self, request: web.Request) -> web.Response:
        if refusal := self.refuse(request):
            return refusal
        fields = await request.json()
        assert all(isinstance(value, str) for value in fields.values())
        assert not any(name.startswith("sys_") for name in fields)  # these cannot be set
        number = len(self.records) + 1
        record = {"sys_id": f"{number:032x}", "number": f"INC{number:07}", "correlation_id": ""}
        record |= fields
        if not self.has_correlation:
            record["correlation_id"] = ""
        self.records.append(record)
        return web.json_response({"result": self._shown(request, [record])[0]}, status=201)

    async def _update(self, request: web.Request) -> web.Response:
        if refusal := self.refuse(request):
            return refusal
        for record in self.records:
            if record["sys_id"] == request.match_info["sys_id"]:
                fields = await request.json()
                self.notes.setdefault(record["number"], []).append(fields["work_notes"])
                return web.json_response({"result": self._shown(request, [record])[0]})
        return web.json_response({"error": {"message": "No Record found"}}, status=404)

    @staticmethod
    def _shown(request: web.Request, rows: list[dict[str, str]]) -> list[dict[str, str]]:
        names = request.query["sysparm_fields"].split(",")
        return [{n: row[n] for n in names if n in row} for row in rows]
