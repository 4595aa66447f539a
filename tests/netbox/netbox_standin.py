"""A stand-in for NetBox that takes only what its recorded OpenAPI document allows.

It keeps objects in memory and answers as NetBox 4.7.3 did, as far as we read: nested objects in
short, choices as value and label. Real NetBox checks much more; `make test-netbox` runs it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
from netbox_openapi import RECORDED

TOKEN = "t" * 40
REFERS = {
    "site": "sites",
    "manufacturer": "manufacturers",
    "device_type": "device-types",
    "role": "device-roles",
    "rack": "racks",
    "device": "devices",
}
CHOICES = ("status", "type")
FOLDERS = {"ip-addresses": "ipam", "tags": "extras"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "devices": {"status": "active", "serial": "", "description": "", "rack": None},
    "interfaces": {"mgmt_only": False},
}


class StandIn:
    """Objects by endpoint and number, as they were sent."""

    def __init__(self) -> None:
        self.url = ""
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self.document = json.loads(RECORDED.read_text())
        self._next = 1

    def check(self, path: str, method: str, body: Any) -> None:
        schema = {
            **self.document["paths"][path][method],
            "components": {"schemas": self.document["components"]},
        }
        jsonschema.Draft202012Validator(schema).validate(body)

    def shown(self, endpoint: str, number: int) -> dict[str, Any]:
        row = self.rows[endpoint][number]
        base = f"{self.url}/api/{FOLDERS.get(endpoint, 'dcim')}/{endpoint}/{number}/"
        told = {**row, "id": number, "url": base, "display": str(row.get("name", number))}
        for field, other in REFERS.items():
            if isinstance(told.get(field), int):
                told[field] = self.shown(other, told[field])
        for field in CHOICES:
            if isinstance(told.get(field), str):
                told[field] = {"value": told[field], "label": told[field].title()}
        for side in "ab":
            name = f"{side}_terminations"
            for end in told.get(name, []):
                end["object"] = self.shown("interfaces", end["object_id"])
        return told

    def ends(self, cable: dict[str, Any]) -> set[int]:
        return {e["object_id"] for s in "ab" for e in cable[f"{s}_terminations"]}

    def matches(self, endpoint: str, number: int, asked: dict[str, list[str]]) -> bool:
        row = self.rows[endpoint][number]
        for name, values in asked.items():
            if name == "device_id" and endpoint in ("interfaces", "modules"):
                found = {str(row["device"])}
            elif name in ("device_id", "device"):
                ends = self.ends(row) if endpoint == "cables" else {row.get("assigned_object_id")}
                devices = {self.rows["interfaces"][e]["device"] for e in ends if e}
                called = {self.rows["devices"][d]["name"] for d in devices}
                found = {str(d) for d in devices} if name == "device_id" else called
            elif name == "site":
                found = {self.rows["sites"][row["site"]]["slug"]}
            else:
                found = {str(number if name == "id" else row.get(name))}
            if not found & set(values):
                return False
        return True

    def create(self, endpoint: str, body: dict[str, Any]) -> int:
        number, self._next = self._next, self._next + 1
        self.rows.setdefault(endpoint, {})[number] = {
            "tags": [], **DEFAULTS.get(endpoint, {}), **body
        }  # fmt: skip
        return number


class Handler(BaseHTTPRequestHandler):
    """Answers for `site`."""

    site: StandIn

    def log_message(self, *_words: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        path, endpoint, number = self._where()
        if number is not None:
            return self._say(200, self.site.shown(endpoint, number))
        asked = parse_qs(urlsplit(self.path).query)
        unknown = set(asked) - set(self.site.document["paths"][path]["get"])
        if unknown:
            return self._say(400, {"detail": f"no such filters: {sorted(unknown)}"})
        first = int(asked.pop("offset", ["0"])[0])
        asked.pop("limit", None)
        there = [
            n for n in self.site.rows.get(endpoint, {}) if self.site.matches(endpoint, n, asked)
        ]
        page = [self.site.shown(endpoint, n) for n in there[first : first + 50]]
        more = first + 50 < len(there)
        query = urlsplit(self.path).query
        link = f"{self.site.url}{path}?{query}&offset={first + 50}" if more else None
        told = {"count": len(there), "next": link, "previous": None, "results": page}
        return self._say(200, told)

    def do_POST(self) -> None:
        self._change("post")

    def do_PATCH(self) -> None:
        self._change("patch")

    def do_DELETE(self) -> None:
        _, endpoint, number = self._where()
        for row in [{"id": number}] if number else self._body():
            del self.site.rows[endpoint][row["id"]]
        self._say(204, None)

    def _change(self, method: str) -> None:
        path, endpoint, number = self._where()
        body = self._body()
        if self.headers["Authorization"] != f"Token {TOKEN}":
            return self._say(403, {"detail": "Invalid token"})
        try:
            self.site.check(path, method, [{"id": number, **body}] if number else body)
        except jsonschema.ValidationError as error:
            return self._say(400, {"detail": f"{path}: {error.message[:300]}"})
        many = body if isinstance(body, list) else [body]
        for row in many:
            row["tags"] = [
                next((t for t in self.site.rows["tags"].values() if t["slug"] == tag["slug"]), tag)
                for tag in row["tags"]
            ] if "tags" in row else row.get("tags")  # fmt: skip
            if row["tags"] is None:
                del row["tags"]
        if method == "post":
            made = [self.site.create(endpoint, row) for row in many]
        else:
            made = [number or row.pop("id") for row in many]
            for n, row in zip(made, many, strict=True):
                self.site.rows[endpoint][n].update(row)
        told = [self.site.shown(endpoint, n) for n in made]
        one = not isinstance(body, list)
        return self._say(201 if method == "post" else 200, told[0] if one else told)

    def _where(self) -> tuple[str, str, int | None]:
        """The endpoint's path, its name, and the number of one object."""
        parts = urlsplit(self.path).path.strip("/").split("/")
        number = int(parts[3]) if len(parts) > 3 else None
        return f"/{'/'.join(parts[:3])}/", parts[2], number

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _say(self, status: int, told: Any) -> None:
        content = b"" if told is None else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("API-Version", "4.7")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """One that answers on loopback."""
    site = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": site}))
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
