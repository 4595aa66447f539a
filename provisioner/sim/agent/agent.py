"""The agents of a simulated site: each host that booted a ramdisk looks itself up and obeys.

An agent cannot open a connection here: `calls` lists the requests that agents have for the daemon
by now, and `answered` passes the daemon's answers to them; `request` carries a request of the
daemon to an agent. All of it is plain data, so that it crosses a socket as well as a function call.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.sim.agent.agent_commands import COMMANDS
from provisioner.sim.agent.agent_work import Failed, Fetch, Json, Ramdisk, Work
from provisioner.sim.hardware.clock import make_certificate
from provisioner.sim.hardware.machine import Machine

RAMDISKS = frozenset({"cd", "http", "pxe"})  # boot sources other than a disk
PORT = 9999
VERSION = "13.0.0"
HIDDEN = "******"
# exponential (ironic_api_client.py, lookup_node)
SECOND_LOOKUP_S = 3.0
LOOKUP_MAX_S = 60.0
REQUEST_S = 30.0  # its http_request_timeout (config.py)
PENDING_S = 5.0  # until a command that goes on is looked at again
RETRY_S = (5.0, 10.0)  # after a refused heartbeat (agent.py, IronicPythonAgentHeartbeat)
JITTER = (0.3, 0.6)  # of the heartbeat timeout
FOREIGN_MAC = "02:00:00:00:de:ad"


@dataclass
class Entry:
    """One command in an agent's list."""

    id: str
    name: str
    status: str = "RUNNING"
    result: Any = None
    error: Json | None = None

    def serialize(self) -> Json:
        """The command as the agent serializes it (extensions/base.py, BaseCommandResult)."""
        return {
            "id": self.id,
            "command_name": self.name,
            "command_status": self.status,
            "command_error": self.error,
            "command_result": self.result,
        }


@dataclass
class Agent:
    """The agent of one boot."""

    machine: Machine
    boot_id: str
    address: str
    ramdisk: Ramdisk
    rng: random.Random
    due: float  # when it calls next
    certificate: str = ""
    node_uuid: str = ""
    token: str = ""
    heartbeat_s: float = 0.0
    wait_s: float = SECOND_LOOKUP_S
    dead: bool = False
    commands: list[Entry] = field(default_factory=list)

    @property
    def lives(self) -> bool:
        """Whether this boot continues and its agent has not died."""
        return not self.dead and self.machine.host.boot_id == self.boot_id

    # --- its calls

    def build_call(self, now: float) -> Json:
        """The call that is due now; the agent repeats it until it is answered."""
        self.due = now + REQUEST_S
        if not self.node_uuid:
            macs = [d.mac for d in self.machine.devices.values() if d.mac and d.present]
            if "agent_wrong_mac" in self.machine.faults:
                macs = [FOREIGN_MAC]
            return self._asking("GET", "/v1/lookup", {"addresses": ",".join(macs)})
        token = "stolen" if "agent_wrong_token" in self.machine.faults else self.token
        body = {
            "callback_url": f"https://{self.address}:{PORT}",
            "agent_token": token,
            "agent_version": VERSION,
            "agent_verify_ca": self.certificate,
        }
        return self._asking("POST", f"/v1/heartbeat/{self.node_uuid}", {}, json.dumps(body))

    def _asking(self, method: str, path: str, query: Json, body: str = "") -> Json:
        return {
            "node": self.machine.name,
            "boot_id": self.boot_id,
            "method": method,
            "path": path,
            "query": query,
            "body": body,
            "peer": self.address,
        }

    def accept_answer(self, status: int, body: Any, now: float) -> None:
        """Update the agent's state from the daemon's answer to its call."""
        if self.node_uuid:
            taken = status == 202
            wait = [self.heartbeat_s * j for j in JITTER] if taken else RETRY_S
            self.due = now + self.rng.uniform(*wait)
            return
        if status != 200:
            self.due = now + self.wait_s * self.rng.uniform(0.5, 1.0)
            self.wait_s = min(2 * self.wait_s, LOOKUP_MAX_S)
            return
        config = body["config"]
        if config["agent_token"] == HIDDEN:  # it locks itself down
            self.dead = True
            return
        self.node_uuid = body["node"]["uuid"]
        self.token = config["agent_token"]
        self.heartbeat_s = float(config["heartbeat_timeout"])
        self.due = now

    # --- requests to it

    def handle_request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: str,
        now: float,
    ) -> tuple[int, Any, float]:
        """Answer the daemon: status, JSON, seconds until the answer."""
        if path == "/v1/status":
            return 200, {"started_at": now, "version": VERSION}, 0.1
        if not self.token or query.get("agent_token") != self.token:
            return 401, _fault("401 Unauthorized: Token invalid."), 0.1
        if method == "GET" and path == "/v1/commands/":
            return 200, {"commands": [c.serialize() for c in self.commands]}, 0.1
        if method == "GET" and path.startswith("/v1/commands/"):
            matches = [c for c in self.commands if c.id == path.rpartition("/")[2]]
            return (
                (200, matches[0].serialize(), 0.1) if matches else (404, _fault("Not found"), 0.1)
            )
        if method == "POST" and path == "/v1/commands/":
            return self._command(json.loads(body), now)
        return 404, _fault("Not found"), 0.1

    def _command(self, body: Json, now: float) -> tuple[int, Any, float]:
        name = str(body.get("name"))
        params = body.get("params")
        if not isinstance(params, dict):
            return 400, _fault("Missing or invalid name or params"), 0.1
        if self.commands and self.commands[-1].status == "RUNNING":
            busy = f"Agent is busy: executing command {self.commands[-1].name}"
            return 409, _fault(busy), 0.1
        act = COMMANDS.get(name)
        if act is None:
            return 404, _fault(f"Extension with id {name.partition('.')[0]} not found."), 0.1
        identifier = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        entry = Entry(identifier, name.partition(".")[2])
        self.commands.append(entry)
        try:
            work = act(self.ramdisk, params)
        except Failed as failure:
            entry.name = name
            entry.status = "FAILED"
            entry.error = failure.error
            return 200, entry.serialize(), 0.1
        if work.sync:
            self._end(entry, work, now)
            return 200, entry.serialize(), self.machine.add_jitter(work.takes_s)
        self._begin(entry, work, now)
        return 200, entry.serialize(), 0.1

    def _begin(self, entry: Entry, work: Work, now: float) -> None:
        work.begin(now)
        takes_s = self.machine.add_jitter(work.takes_s)

        def die(_at: float) -> None:
            self.dead = True

        def end(at: float) -> None:
            if self.lives and work.is_pending():
                self.machine.schedule.plan_act(at + PENDING_S, end)
            elif self.lives:
                self._end(entry, work, at)
                self.due = min(self.due, at + RETRY_S[0])  # the agent calls when a command ends

        if "agent_dies" in self.machine.faults:
            self.machine.schedule.plan_act(now + takes_s / 2, die)
        self.machine.schedule.plan_act(now + takes_s, end)

    @staticmethod
    def _end(entry: Entry, work: Work, now: float) -> None:
        try:
            result = work.finish(now)
        except Failed as failure:
            entry.status = "FAILED"
            entry.error = failure.error
            return
        entry.status = "SUCCEEDED"
        entry.result = result


class Agents:
    """All agents of a site. `fetch` downloads images for them."""

    def __init__(self, machines: Mapping[str, Machine], addresses: Mapping[str, str]) -> None:
        self._machines = machines
        self._addresses = addresses
        self._agents: dict[str, Agent] = {}
        self.fetch: Fetch = lambda _url, back: back(None)
        self.calls_made = 0

    def list_calls(self, now: float) -> list[Json]:
        """The requests that agents have for the daemon by now."""
        calls = []
        for name in self._machines:
            agent = self._agent(name, now)
            if agent is None or agent.due > now:
                continue
            if "agent_silent" not in agent.machine.faults:
                calls.append(agent.build_call(now))
        self.calls_made += len(calls)
        return calls

    def accept_answer(self, call: Json, status: int, body: Any, now: float) -> None:
        """Pass the daemon's answer to the agent that made the call."""
        agent = self._agents.get(str(call["node"]))
        if agent is not None and agent.boot_id == call["boot_id"] and agent.lives:
            agent.accept_answer(status, body, now)

    def send_request(
        self, url: str, method: str, path: str, query: Mapping[str, str], body: str, now: float
    ) -> Json | None:
        """The answer of the agent at `url`; None if nothing listens there."""
        for name in self._machines:
            agent = self._agent(name, now)
            if agent is not None and url == f"https://{agent.address}:{PORT}":
                status, answer, takes_s = agent.handle_request(method, path, query, body, now)
                shown = {"certificate": agent.certificate, "takes_s": takes_s}
                return {"status": status, "body": answer, **shown}
        return None

    def _agent(self, name: str, now: float) -> Agent | None:
        """The agent that runs in this host now."""
        machine = self._machines[name]
        agent = self._agents.get(name)
        host = machine.host
        if agent is not None and not agent.lives:
            return None if agent.boot_id == host.boot_id else self._boot(machine, now)
        return agent if agent is not None else self._boot(machine, now)

    def _boot(self, machine: Machine, now: float) -> Agent | None:
        host = machine.host
        self._agents.pop(machine.name, None)
        if host.phase != "up" or host.boot_id is None or host.os not in RAMDISKS:
            return None
        rng = random.Random(host.boot_id)
        address = self._addresses[machine.name]
        agent = Agent(machine, host.boot_id, address, Ramdisk(machine, self.fetch), rng, now)
        agent.certificate = make_certificate(f"agent {host.boot_id[:8]}", address)[0].decode()
        self._agents[machine.name] = agent
        return agent


def _fault(text: str) -> Json:
    return {"faultcode": "Client", "faultstring": text}
