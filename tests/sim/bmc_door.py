"""One request at a time to a simulated BMC, with its factory credentials unless told otherwise."""

from __future__ import annotations

import base64
import json
from typing import Any

from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import HandClock, Schedule
from provisioner.integrations.sim.redfish.bmc import make_service
from provisioner.integrations.sim.redfish.redfish_tree import Answer

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"
SYSTEM = f"{ROOT}/Systems/1"
ACCOUNT = f"{ROOT}/AccountService/Accounts"


class Door:
    """Asks one BMC, with its factory credentials unless told otherwise."""

    def __init__(self, bmc: str = "host", vendor: str = "supermicro") -> None:
        self.clock = HandClock()
        self.machine = build_machine("n0", Schedule(), seed=1, vendor=vendor)
        self.service = make_service(self.machine, bmc, self.clock)
        self.bmc = self.machine.bmcs[bmc]

    def basic(self, password: str | None = None) -> dict[str, str]:
        login = f"{self.bmc.username}:{self.bmc.password if password is None else password}"
        return {"authorization": "Basic " + base64.b64encode(login.encode()).decode()}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> Answer:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        asked = {f"${k}": v for k, v in query.items()}
        told = self.basic() if headers is None else headers
        return self.service.handle(method, path, asked, told, raw)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        told = self.ask("GET", path, **query)
        assert told.status == 200, told
        return dict(json.loads(told.body))

    def session(self, password: str | None = None) -> Answer:
        login = {"UserName": self.bmc.username, "Password": password or self.bmc.password}
        return self.ask("POST", SESSIONS, login, {})


def reason(told: Answer) -> str:
    """The key of the first extended message."""
    info = json.loads(told.body)["error"]["@Message.ExtendedInfo"]
    return str(info[0]["MessageId"]).rpartition(".")[2]
