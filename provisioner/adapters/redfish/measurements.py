"""Signed measurements of the roots of trust behind a BMC: ComponentIntegrity, with our own nonces.

A BMC answers the action with a task and keeps the last result of any client at `<action>/data`
(NVIDIA/bmcweb 7f3a16ae, component_integrity.hpp): only the nonce inside shows whose it is. One
collection runs at a time, so components are asked one after the other. Components that are disabled
are left out of the collection; a component without an answer is in the result with its problem.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from provisioner.adapters.redfish.messages import body_of, task_paths
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, text
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.tasks import read_view
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.outcome import Blocker
from provisioner.ports import Reply

COMPONENTS_MAX = 64  # a DGX H100 has 17, an NVL72 compute tray fewer
POLL_S = 5.0
ANSWER_S = 300.0  # 254 indices take about one second each (bmcweb)
BUSY_S = 300.0  # bmcweb's Retry-After while another collection runs
ACTION = "#ComponentIntegrity.SPDMGetSignedMeasurements"
TEXT_MAX = 512 * 1024  # characters of signed measurements or of a chain; a GPU's have 5,700
Sleep = Callable[[float], Awaitable[None]]


async def collect_measurements(
    service: Service, patterns: Sequence[str], sleep: Sleep, asked_at: float
) -> dict[str, Any]:
    """Ask each component whose name matches a pattern; return evidence as JSON values.

    Raises `PortError` if the BMC as a whole does not answer.
    """
    walk = service.walk()
    members = await walk.read_linked(await walk.read_root(), "ComponentIntegrity")
    rows = []
    for member in members[:COMPONENTS_MAX]:
        name = text(member.data.get("Id")) or member.path.rpartition("/")[2]
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if member.data.get("ComponentIntegrityEnabled") is False:
            rows.append({"component": name, "problem": "it is disabled"})
            continue
        rows.append(await _ask(service, walk, name, member.data, sleep))
    gaps = [[g.source, g.reason.value, g.detail] for g in walk.gaps]
    return {"asked_at": asked_at, "components": rows, "gaps": gaps}


async def _ask(
    service: Service, walk: Walk, name: str, member: Json, sleep: Sleep
) -> dict[str, Any]:
    nonce = secrets.token_bytes(32).hex()
    row: dict[str, Any] = {"component": name, "nonce": nonce}
    target = target_of(action_of(member, ACTION))
    if target is None:
        return {**row, "problem": "it offers no signed measurements"}
    body = {"Nonce": nonce, "SlotId": 0, "MeasurementIndices": [255]}
    reply = await _post(service, target, body, name, sleep)
    if isinstance(reply, Blocker):
        return {**row, "problem": reply.detail[:300]}
    answer = body_of(reply) if reply.status == 200 else {}
    if not _long_text(answer, "SignedMeasurements"):
        problem = await _await_task(service, next(task_paths(reply), ""), sleep)
        if problem:
            return {**row, "problem": problem}
        answer = (await walk.read(f"{target}/data")).data
    signed = _long_text(answer, "SignedMeasurements")
    if not signed:
        return {**row, "problem": "its answer has no signed measurements"}
    return {**row, "signed": signed, "certificates": await _read_chain(walk, member, answer)}


async def _post(
    service: Service, target: str, body: Json, name: str, sleep: Sleep
) -> Reply | Blocker:
    """Ask once more after the pause that a busy BMC asks for; the other asker may be a person."""
    reply = await service.call("POST", target, body)
    if reply.status == 503:
        await sleep(BUSY_S)
    elif 200 <= reply.status < 300:
        return reply
    return await service.post(target, body, name)


async def _await_task(service: Service, task: str, sleep: Sleep) -> str:
    """Return why the task did not end well within its limit; "" if it did, or was not named."""
    waited_s = 0.0
    while task and waited_s < ANSWER_S:
        await sleep(POLL_S)
        waited_s += POLL_S
        current = read_view(await service.call("GET", task), task)
        if current.done or current.vanished:
            return (current.failed or "")[:300]
    return f"no answer within {ANSWER_S:.0f} s" if task else ""


async def _read_chain(walk: Walk, member: Json, answer: Json) -> str:
    """Return the component's certificates as PEM; "" if it shows none."""
    paths = (
        link(answer, "Certificate"),
        link(
            as_object(at(member, "SPDM", "IdentityAuthentication", "ResponderAuthentication")),
            "ComponentCertificate",
        ),
    )
    for path in paths:
        if path is not None:
            chain = _long_text((await walk.read(path)).data, "CertificateString")
            if chain:
                return chain
    return ""


def _long_text(body: Json, key: str) -> str:
    """Return a text that may be longer than a name or a message; "" without one."""
    value = body.get(key)
    return value if isinstance(value, str) and len(value) <= TEXT_MAX else ""
