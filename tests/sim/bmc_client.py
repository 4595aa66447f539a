"""A client of one simulated BMC in memory, with the clock to move."""

from __future__ import annotations

import base64
import json
from typing import Any

from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import HandClock, Schedule
from provisioner.integrations.sim.redfish.bmc import from_files, make_service
from provisioner.integrations.sim.redfish.redfish_tree import Answer

ITEMS = "/redfish/v1/UpdateService/FirmwareInventory"
TASKS = "/redfish/v1/TaskService/Tasks"


class Client:
    """A client of one BMC whose factory password was changed, and the clock to move."""

    def __init__(self, bmc: str = "host", vendor: str = "supermicro") -> None:
        self.clock, schedule = HandClock(), Schedule()
        self.machine = build_machine("n0", schedule, seed=1, vendor=vendor)
        self.files: dict[str, bytes] = {}
        self.service = make_service(self.machine, bmc, self.clock, from_files(self.files))
        account = next(iter(self.service.accounts.accounts.values()))
        account.change_required = False
        login = f"{account.username}:{account.password}".encode()
        self.headers = {"authorization": "Basic " + base64.b64encode(login).decode()}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        raw = b"" if body is None else json.dumps(body).encode()
        return self.service.handle(method, path, {}, {**self.headers, **headers}, raw)

    def get(self, path: str) -> dict[str, Any]:
        told = self.ask("GET", path)
        assert told.status == 200, told
        return dict(json.loads(told.body))

    def push(
        self, image: bytes, parameters: dict[str, Any], path: str = "", part: str = "UpdateFile"
    ) -> Answer:
        where = path or self.get("/redfish/v1/UpdateService")["MultipartHttpPushUri"]
        body = (
            b'--b\r\nContent-Disposition: form-data; name="UpdateParameters"\r\n'
            b"Content-Type: application/json\r\n\r\n" + json.dumps(parameters).encode()
            + b'\r\n--b\r\nContent-Disposition: form-data; filename="x"; name="'
            + part.encode() + b'"\r\n'
            b"Content-Type: application/octet-stream\r\n\r\n" + image + b"\r\n--b--\r\n"
        )  # fmt: skip
        headers = {**self.headers, "content-type": "multipart/form-data; boundary=b"}
        return self.service.handle("POST", where, {}, headers, body)

    def version(self, item: str) -> str:
        return str(self.get(f"{ITEMS}/{item}")["Version"])

    def later(self, seconds: float) -> None:
        self.machine.schedule.advance(self.clock.move(seconds))

    def keys(self, task: str) -> list[str]:
        return [m["MessageId"].rpartition(".")[2] for m in self.get(task)["Messages"]]
