"""A demonstration that stays, started and stopped, and the environment in which steps find it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from daemon_client import Daemon, list_hosts, wait_for
from guest_host import Guest, ToolError, find_obstacle, read_last_lines, run_guest, run_tool
from log_senders import LogSenders
from log_steps import wait_for_logs
from node_steps import give_back, order_node
from second_site import SecondSite

START_S = 900.0
STOP_S = 60.0
COMMAND_S = 300.0  # of a command line, on a machine that has more to do
SIGN_IN = re.compile(r"console: (https://\S+)/\s+token: (\S+)")
SERVES = "Every node serves"
DAY_S = 86400
FIRST = "acc-first"  # the tenant that has the guest's node before the run
OLD_DAYS = 31  # a run lasts for some simulated days, and a log of consoles has to go back a month
SERVED = 6  # hosts of the demonstration's two tenants; the others are for those of the run
PROGRAM = (sys.executable, "-m", "provisioner")


class Demonstration:
    """A running demonstration: its address, its token, its folder, and a daemon beside it."""

    second: SecondSite
    guest: Guest | None = None
    senders: LogSenders

    def __init__(self, directory: Path, url: str, token: str) -> None:
        self.directory = directory
        self.url = url.rstrip("/")
        self.evidence = directory.parent / "evidence"
        self._simulated: set[tuple[str, ...]] = set()
        self._token = directory / "acceptance-token"
        self._token.touch(mode=0o600)
        self._token.write_text(token, encoding="utf-8")

    @property
    def data(self) -> Path:
        """Return the data directory of its daemon."""
        return self.directory / "data"

    def environment(self) -> dict[str, str]:
        """Return the variables from which a step takes the daemon's address."""
        return {
            "ACCEPTANCE_API": self.url,
            "ACCEPTANCE_CA": str(self.data / "agent-ca.pem"),
            "ACCEPTANCE_TOKEN_FILE": str(self._token),
            "ACCEPTANCE_EVIDENCE": str(self.evidence),
            "ACCEPTANCE_EXPECTED": str(self.directory / "expected.yaml"),
            "ACCEPTANCE_DATA": str(self.data),
            **self.second.environment(),
            **self._describe_guest(),
        }

    def _describe_guest(self) -> dict[str, str]:
        """Return the node with a real system, and the keys of its tenant and of another."""
        if self.guest is None:
            return {}
        return {
            "ACCEPTANCE_GUEST": self.guest.node,
            "ACCEPTANCE_TENANT_KEY": str(self.guest.keys["tenant-key"]),
            "ACCEPTANCE_OTHER_KEY": str(self.guest.keys["other-key"]),
        }

    @contextmanager
    def guested(self, folder: Path, system: Path) -> Iterator[None]:
        """Put a real system behind a free host, where this machine can have one."""
        if find_obstacle():
            yield
            return
        daemon = self.open()
        # the demonstration's hosts came with a system; one that a tenant gave back has the daemon's
        node = order_node(daemon, FIRST)["id"]
        give_back(daemon, FIRST)
        free = f"kind=host and state=certified and node={node}"
        (host,) = wait_for(lambda: list_hosts(daemon, free), START_S, f"{node} is written anew")
        with run_guest(folder, system, host["id"], host["address"], self.ask_simulator) as guest:
            self.guest = guest
            yield

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Let some hosts and switches send their logs by rsyslog."""
        folder = self.directory / "log-senders"
        self.senders = LogSenders(folder, self.data / "agent-ca.pem", self.ask_simulator)
        with self.senders.running():
            wait_for_logs(self.open())
            yield

    def open(self) -> Daemon:
        """Return a client of its API."""
        self.evidence.mkdir(parents=True, exist_ok=True)
        token = self._token.read_text(encoding="utf-8")
        return Daemon(self.url, str(self.data / "agent-ca.pem"), token, self.evidence / "run.jsonl")

    def command(self, *words: str) -> str:
        """Run a command of the program and return its output."""
        return run_tool(*PROGRAM, *words, timeout_s=COMMAND_S)

    def client(self, *words: str, plain: bool = False) -> Any:
        """Run a command of the client on this daemon and return its JSON, or its plain output."""
        more = () if plain else ("--json",)
        output = self.command(*words, "--data", str(self.data), *more)
        return output if plain else json.loads(output)

    def simulate(self, *words: str) -> None:
        """Run a command of the simulator on this site; what is broken already is left so."""
        if words in self._simulated:
            return
        self._simulated.add(words)
        self.command("sim", *words, "--control", str(self.directory / "control.sock"))

    def ask_simulator(self, verb: str, path: str, body: object = None) -> Any:
        """Return the simulator's answer at its control socket."""
        connection = http.client.HTTPConnection("simulator", timeout=STOP_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.directory / "control.sock"))
        connection.request(verb, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"simulator: {verb} {path}: {content[:300]!r}")
        return json.loads(content)

    @cached_property
    def nodes(self) -> dict[str, str]:
        """Return the nodes to give back, to retire and to replace, and the rack to give back."""
        served = [
            h
            for h in list_hosts(self.open(), "kind=host and state=released")
            if h["tenant"] in ("red", "blue")
        ]
        names = [h["id"] for h in served]
        return {
            "machine_id": names[0],
            "retired_id": names[1],
            "replaced_id": names[2],
            "rack_id": served[3]["location"]["rack"],
        }


@contextmanager
def run_demonstration(directory: Path, nodes: int) -> Iterator[Demonstration]:
    """Start a demonstration, wait until its nodes serve, and end it afterwards."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    output = directory.parent / "demonstration.log"
    spare = max(nodes // 4, nodes - SERVED)
    options = ("--nodes", str(nodes), "--spare", str(spare), "--directory", str(directory))
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*PROGRAM, "demo", "--stay", *options],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield _wait(process, output, directory)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _place_console_lines(site: Demonstration) -> None:
    """Store two lines with a date of a month ago for each console, before the daemon reads any."""
    now = datetime.fromisoformat(site.open().get("/me")["now"]).timestamp()
    at = now - OLD_DAYS * DAY_S
    listed = json.loads((site.directory / "expected.yaml").read_text(encoding="utf-8"))
    for node in listed["nodes"]:
        if node["kind"] == "host":
            folder = site.data / "consoles" / node["name"]
            folder.mkdir(mode=0o700, parents=True)
            rows = [[number, at, "placed by the acceptance run"] for number in (0, 1)]
            file = folder / f"{int(at // DAY_S)}.jsonl"
            file.touch(mode=0o600)
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _wait(process: subprocess.Popen[bytes], output: Path, directory: Path) -> Demonstration:
    """Return the demonstration once every node serves."""
    until = time.monotonic() + START_S
    site = None
    while process.poll() is None and time.monotonic() < until:
        text = output.read_text(encoding="utf-8", errors="replace")
        sign_in = SIGN_IN.search(text)
        if sign_in and site is None:
            site = Demonstration(directory, *sign_in.groups())
            _place_console_lines(site)
        if site is not None and SERVES in text:
            return site
        time.sleep(0.2)
    raise ToolError(f"the demonstration did not start{read_last_lines(output)}")
