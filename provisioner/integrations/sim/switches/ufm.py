"""A simulated UFM: partitions and the subnet manager's configuration by its REST API, with state.

As UFM's guide ("PKey GUIDs REST API") and NVIDIA's own clients have it: `POST /resources/pkeys/add`
makes an empty partition, `POST /resources/pkeys/` adds ports and makes the partition if need be,
`DELETE .../guids/a,b` takes ports away, and with the last one the partition is gone. Unknown
parameters, and GUIDs of other lengths than 16 to 20 characters, are answered with 400.
`GET /app/smconf` as NVIDIA's infra-controller reads it (crates/ib-fabric).
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.integrations.sim.redfish.redfish_tree import Answer, Json, make_answer

NAME = "ufm"  # of its endpoint
DEFAULT = "0x7fff"
PKEYS_END = 0x7FFF  # UFM: between 0x0 and 0x7fff, both excluded
KNOWN = {"pkey", "guids", "index0", "ip_over_ib", "membership", "memberships"}
PASSWORD = "the fabric's"  # noqa: S105 (of a simulated UFM)
BAD = "bad or missing parameters"


class UfmService:
    """Answers one request at a time; nothing in here waits."""

    def __init__(self, username: str = "admin", password: str = PASSWORD) -> None:
        self.username = username
        self.password = password
        self.partitions: dict[str, dict[str, Any]] = {DEFAULT: {"ip_over_ib": True, "guids": {}}}
        self.configuration: Json = {
            "subnet_prefix": "0xfe80000000000000",
            "m_key": "0x4d5f4b45595f3031",
            "sm_key": "0x0000000000000001",
            "sa_key": "0x0000000000000001",
            "m_key_per_port": True,
        }

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        """The answer to one request; `headers` may have names in any case."""
        if not self.admits(path, headers):
            return make_answer(401)
        words = [w for w in path.split("/") if w][1:]
        if method == "GET" and words == ["app", "smconf"]:
            return make_answer(200, self.configuration)
        if words[:2] != ["resources", "pkeys"]:
            return make_answer(404)
        try:
            document = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            return make_answer(400, {"error": BAD})
        return make_answer(*self.act(method, words[2:], query, document))

    def admits(self, path: str, headers: Mapping[str, str]) -> bool:
        """Return whether the login is right: each kind of it has a path of its own."""
        secret = self.password
        if not path.startswith("/ufmRestV3/"):
            secret = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        given = next((v for k, v in headers.items() if k.lower() == "authorization"), "")
        return hmac.compare_digest(given.encode(), f"Basic {secret}".encode())

    def act(
        self, method: str, words: Sequence[str], query: Mapping[str, str], body: Any
    ) -> tuple[int, Json]:
        """Return status and body of a request below /resources/pkeys."""
        match (method, *words):
            case ("GET",):
                guids = query.get("guids_data") == "true"
                return 200, {k: self._show(k, guids=guids) for k in self.partitions}
            case ("POST", "add"):
                return self._make(body)
            case ("POST",):
                return self._add(body)
            case ("DELETE", key):
                there = self.partitions.pop(_key(key), None)
                return (404 if there is None else 200), {}
            case ("DELETE", key, "guids", listed):
                return self._remove(_key(key), listed.split(","))
        return 405, {}

    def _make(self, body: Any) -> tuple[int, Json]:
        if not _is_valid(body):
            return 400, {"error": BAD}
        key = _key(body["pkey"])
        if key in self.partitions:
            return 400, {"error": f"{key} exists"}
        self.partitions[key] = {"ip_over_ib": body.get("ip_over_ib", True), "guids": {}}
        return 200, {}

    def _add(self, body: Any) -> tuple[int, Json]:
        if not _is_valid(body) or not isinstance(body.get("guids"), list) or not body["guids"]:
            return 400, {"error": BAD}
        if not all(16 <= len(str(guid)) <= 20 for guid in body["guids"]):
            return 400, {"error": BAD}
        membership = body.get("membership", "full")
        if membership not in ("full", "limited"):
            return 400, {"error": "membership"}
        made = {"ip_over_ib": body.get("ip_over_ib", True), "guids": {}}
        members = self.partitions.setdefault(_key(body["pkey"]), made)["guids"]
        members |= {str(guid).lower(): membership for guid in body["guids"]}
        return 200, {}

    def _remove(self, key: str, guids: Sequence[str]) -> tuple[int, Json]:
        if key not in self.partitions:
            return 404, {"error": "no such pkey"}
        members = self.partitions[key]["guids"]
        gone = [guid for guid in guids if members.pop(guid, None) is not None]
        if gone and not members:
            del self.partitions[key]
        return 200, {}

    def _show(self, key: str, *, guids: bool) -> Json:
        entry = self.partitions[key]
        shown: Json = {
            "partition": "management" if key == DEFAULT else f"api_pkey_{key}",
            "ip_over_ib": entry["ip_over_ib"],
        }
        if guids:
            shown["guids"] = [
                {"guid": guid, "membership": membership, "index0": True}
                for guid, membership in entry["guids"].items()
            ]
        return shown


def _is_valid(body: Any) -> bool:
    """Return whether a body has known parameters only, and a P_Key that UFM takes."""
    if not isinstance(body, dict) or set(body) - KNOWN:
        return False
    try:
        return 0 < int(body.get("pkey", "0"), 16) < PKEYS_END
    except (TypeError, ValueError):
        return False


def _key(text: str) -> str:
    try:
        return f"{int(text, 16):#x}"
    except ValueError:
        return text
