"""The REST API of an Ironic without authentication: each answer is recorded before it is read."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = "1.113"
WAIT_S = 240.0
Answer = dict[str, Any]
RESTING = ("active", "available", "manageable", "enroll", "adopt failed", "inspect failed")


class RefusedError(Exception):
    """Ironic refused a request, or a state was not reached."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"HTTP {status}: {why}")
        self.status = status


class Ironic:
    """Sends requests and writes each answer into a file of evidence."""

    def __init__(self, url: str, evidence: Path) -> None:
        self._url, self._evidence = url, evidence

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer. Raise RefusedError for any refusal but that a node is locked."""
        until = time.monotonic() + WAIT_S
        while True:
            status, answer = self._send_once(method, path, body)
            if status not in (409, 503) or time.monotonic() > until:
                break
            time.sleep(1)
        if status >= 400:
            raise RefusedError(status, str(answer)[:300])
        return answer

    def _send_once(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        head = {"X-OpenStack-Ironic-API-Version": VERSION, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/v1{path}", data, head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        answer = json.loads(text) if text else None
        with self._evidence.open("a", encoding="utf-8") as file:
            line = {"request": f"{method} {path}", "body": body, "status": status, "answer": answer}
            file.write(json.dumps(line) + "\n")
        return status, answer

    def node(self, name: str) -> Answer:
        """Return one node in full."""
        return dict(self.send("GET", f"/nodes/{name}"))

    def nodes(self, query: str = "") -> list[Answer]:
        """Return all nodes in full, in the order of their names."""
        listed = self.send("GET", f"/nodes/detail?limit=1000{query}")["nodes"]
        return sorted(listed, key=lambda node: str(node["name"]))

    def patch(self, name: str, **fields: Any) -> None:
        """Replace fields of a node."""
        rows = [{"op": "add", "path": f"/{key}", "value": value} for key, value in fields.items()]
        self.send("PATCH", f"/nodes/{name}", rows)

    def move(self, name: str, verb: str, goal: str) -> Answer:
        """Send a verb of provisioning and return the node once it rests in the state `goal`."""
        self.send("PUT", f"/nodes/{name}/states/provision", {"target": verb})
        time.sleep(1)  # it answers before it has left the old state

        def rests(node: Answer) -> bool:
            return node["provision_state"] in RESTING and not node["reservation"]

        node = self.wait(name, rests)
        if node["provision_state"] != goal:
            raise RefusedError(0, f"{verb}: {node['provision_state']}: {node['last_error']}")
        return node

    def power(self, name: str, target: str, goal: str) -> Answer:
        """Switch a node and return it once the state `goal` was read from its BMC."""
        self.send("PUT", f"/nodes/{name}/states/power", {"target": target})
        time.sleep(1)

        def switched(node: Answer) -> bool:
            under_way = node["target_power_state"] or node["reservation"]
            return node["power_state"] == goal and not under_way

        return self.wait(name, switched)

    def wait(self, name: str, good: Callable[[Answer], bool]) -> Answer:
        """Return a node once it is as wished. Raise RefusedError if it is not in time."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            node = self.node(name)
            if good(node):
                return node
            time.sleep(1)
        raise RefusedError(0, f"{name} stays in {node['provision_state']}, {node['power_state']}")

    def allocate(self, **fields: Any) -> Answer:
        """Ask for a node and return the allocation once it has one or is an error."""
        made = self.send("POST", "/allocations", fields)
        until = time.monotonic() + WAIT_S
        while made["state"] == "allocating" and time.monotonic() < until:
            time.sleep(1)
            made = self.send("GET", f"/allocations/{made['uuid']}")
        return dict(made)

    def chassis(self) -> dict[str, str]:
        """Return the names of racks, which the operator entered as chassis, by their ids."""
        rows = self.send("GET", "/chassis?limit=1000")["chassis"]
        return {row["uuid"]: row["description"] for row in rows}


def open_ironic(step: str) -> Ironic:
    """Return the Ironic that the environment names, with a file of evidence for a step."""
    folder = Path(os.environ["IRONIC_EVIDENCE"])
    folder.mkdir(parents=True, exist_ok=True)
    return Ironic(os.environ["IRONIC_API"], folder / f"{step}.jsonl")
