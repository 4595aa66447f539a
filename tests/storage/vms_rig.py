"""The adapter on the simulated VMS, in one process; every exchange is held against VAST's document.

The excerpt names its source; the simulator's own choices are in its module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema

from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.integrations.vast.spaces import VastSpaces
from provisioner.integrations.vast.vms_calls import VmsCalls
from provisioner.ports import Clock, Reply, Secret, Unreachable

EXCERPT = json.loads((Path(__file__).parent / "vms_openapi_excerpt.json").read_text())["operations"]


class SimulatedWire:
    """`VmsWire` to a simulated VMS. `exchanges`: the checked ones, by operation."""

    def __init__(self, vms: SimulatedVms) -> None:
        self.vms = vms
        self.exchanges: dict[str, int] = {}

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None, authorization: str
    ) -> Reply:
        if self.vms.silent:
            raise Unreachable("VMS does not answer", maybe_executed=False)
        operation = f"{method} {re.sub(r'/[0-9]+/', '/{id}/', urlsplit(path).path)}"
        said = EXCERPT[operation]
        if body is not None:
            _validate(dict(body), said["request"])
        try:
            status, headers, answer = self.vms.handle(method, path, body, authorization)
        except ConnectionResetError as error:
            raise Unreachable(str(error), maybe_executed=True) from None
        if status < 300:
            schema = said["responses"][str(status)]
            paged = isinstance(answer, dict) and "results" in answer
            if schema is not None:
                _validate(answer["results"] if paged else answer, schema)
            self.exchanges[operation] = self.exchanges.get(operation, 0) + 1
        text = b"" if answer is None else json.dumps(answer).encode()
        return Reply(status, headers, text)

    async def close(self) -> None:
        pass


def _validate(value: object, schema: Mapping[str, Any]) -> None:
    problem = jsonschema.exceptions.best_match(_Validator(schema).iter_errors(value))
    assert problem is None, f"{problem.json_path}: {problem.message}"


_Validator = jsonschema.Draft4Validator  # OpenAPI 3.0 has the words of that draft


def open_simulated(vms: SimulatedVms, clock: Clock) -> tuple[VastSpaces, SimulatedWire]:
    wire = SimulatedWire(vms)
    secret = Secret(vms.password)
    calls = VmsCalls(wire, vms.user, secret, clock, task_limit_s=60.0, poll_s=1.0)
    return VastSpaces(calls, ("tenants",)), wire
