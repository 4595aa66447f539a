"""A recorded BMC that also answers what changes it, and remembers what was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.ports import BmcAddress, Call, Reply

HERE = Path(__file__).parent
V1 = "/redfish/v1"
TASK = f"{V1}/TaskService/Tasks/3"
Answer = Callable[[Call], Reply]


class Bmc(TreeTransport):
    """A tree, and answers to what changes it: "METHOD path" -> reply, or a function of the call."""

    def __init__(self, tree: Mapping[str, Any], answers: Mapping[str, Reply | Answer]) -> None:
        super().__init__(tree)
        self.answers = answers
        self.sent: list[Call] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        answer = self.answers.get(f"{call.method} {call.path}")
        if call.method != "GET":
            self.sent.append(call)
        if answer is None:
            return await super().request(bmc, call)
        return answer if isinstance(answer, Reply) else answer(call)


def reply(status: int, body: object = None, **headers: str) -> Reply:
    return Reply(status, headers, b"" if body is None else json.dumps(body).encode())


def said(*keys: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    info = [{"MessageId": key, "Message": key, "MessageArgs": list(args)} for key in keys]
    return {"error": {"@Message.ExtendedInfo": info}}


def bmc_of(
    case: str, answers: Mapping[str, Reply | Answer], **changes: dict[str, Any]
) -> tuple[Bmc, Redfish]:
    """A recorded case with resources changed: keys are paths under /redfish/v1, "_" for "/"."""
    tree: dict[str, Any] = {}
    for path, text in tree_of(HERE / case).items():
        try:
            tree[path] = json.loads(text)
        except ValueError:
            tree[path] = text
    for name, change in changes.items():
        path = f"{V1}/{name.replace('__', '/')}".rstrip("/")
        tree[path] = {**tree.get(path, {}), **change}
    bmc = Bmc(tree, answers)
    return bmc, Redfish(bmc, ADDRESS, quirks.identify(tree[V1]), go_on)


async def go_on(_seconds: float) -> None:
    """Wait for nothing."""


def run(work: Awaitable[Any]) -> Any:
    async def whole() -> Any:
        return await work

    return asyncio.run(whole())
