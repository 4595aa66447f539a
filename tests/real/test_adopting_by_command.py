"""A serving fleet adopted as a person does it: `serve --observe`, and `adopt` with other lists.

The hosts stand in tenants' networks, as the simulated leaves forward. One is in a CSV, one in the
answers of a real Ironic, and one in a CSV that names the wrong tenant. Every request that arrives
at a BMC or a switch is recorded.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
import yaml
from program import alone

from provisioner.integrations.demo.site import prepare_files
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.control import Control
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / folder) for folder in ("ironic", "peers")]

from recorded_ironic import Served, serve_ironic  # noqa: E402 (of another folder)

LISTED, LENT, DISPUTED = "su0-n00", "su0-n01", "su0-n02"
VRFS = {LISTED: "RED", LENT: "RED", DISPUTED: "BLUE"}
LIMIT_S = 120.0  # of a loaded machine


class Fleet:
    """A simulated site that serves, and what arrives at it."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(3, 7, clock=FastClock(1.0))
        self.socket = folder / "site.sock"
        self.requests: set[tuple[str, str]] = set()
        for name, vrf in VRFS.items():
            place = self.site.places[name]
            for rail in range(8):
                leaf = self.site.switches[place.name_leaf(rail)]
                for tree in (leaf.operational, leaf.applied, leaf.startup):
                    tree["interface"][place.interface].setdefault("ip", {})["vrf"] = vrf
        self.before = self.read_state()

    def read_state(self) -> list[object]:
        switches = self.site.switches
        return [
            {n: json.dumps([s.operational, s.applied, s.startup]) for n, s in switches.items()},
            {n: [str(e) for e in m.log] for n, m in self.site.machines.items()},
        ]

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Serve it over HTTPS until the block ends."""
        ready = threading.Event()
        stop = asyncio.Event()
        loop = uvloop.new_event_loop()

        async def run() -> None:
            server = await serve_site(self.site)
            for device in (*self.site.redfish.values(), *self.site.nvue.values()):
                device.handle = self._note(device.handle)  # type: ignore
            control = Control(self.site, self.socket)
            await control.start()
            ready.set()
            await stop.wait()
            await control.stop()
            await server.close()

        thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
        thread.start()
        assert ready.wait(LIMIT_S)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(LIMIT_S)
            loop.close()

    def _note(self, handle: Any) -> Any:
        def noting(method: str, path: str, *rest: Any) -> Any:
            self.requests.add((method, path))
            return handle(method, path, *rest)

        return noting


class Person:
    """Commands in a folder, beside a daemon that observes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str, code: int = 0) -> str:
        done = alone(list(words), self.folder)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def observe(self, fleet: Fleet, overlay: Path) -> Iterator[None]:
        """Run `provisioner serve --observe`, and end it in order."""
        command = [
            sys.executable, "-m", "provisioner", "serve", "--observe", "--data", "observe",
            "--matrix", str(ROOT / "firmware_matrix.yaml"), "--matrix", str(overlay),
            "--artifact-port", "0", "--settings", "site.yaml",
            "--simulator", str(fleet.socket), "--lab",
        ]  # fmt: skip
        log = self.folder / "daemon.log"
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, cwd=self.folder)
        try:
            end = time.monotonic() + LIMIT_S
            while "OBSERVING" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            yield
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def write_lists(folder: Path, fleet: Fleet) -> Path:
    """Write the site's own list without hosts, and the tables of the others."""
    files = prepare_files(folder, fleet.site.build_expected(), 2)
    listed = json.loads(files.expected.read_text())
    switches = [n for n in listed["nodes"] if n["kind"] == "switch"]
    (folder / "base.yaml").write_text(yaml.safe_dump({**listed, "nodes": switches}))
    cables = {}
    for name, place in fleet.site.places.items():
        ports = [f"{place.name_leaf(r)}/{place.interface}=NIC_{r}" for r in range(8)]
        cables[name] = " ".join(ports)
    rows = [("name", "bmc", "tenant", "ports")]
    rows += [
        (n, fleet.site.urls[f"{n}/host"], tenant, cables[n])
        for n, tenant in ((LISTED, "red"), (DISPUTED, "red"))
    ]
    (folder / "hosts.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (folder / "cables.csv").write_text(f"name,ports\n{LENT},{cables[LENT]}\n")
    (folder / "site.yaml").write_text(yaml.safe_dump({"watch_s": 3600.0, "api_port": 0}))
    return files.overlay


def lend(ironic: Served, fleet: Fleet) -> None:
    """Have the recorded Ironic hold one simulated host: its serving one."""
    machine = fleet.site.machines[LENT]
    node = next(n for n in ironic.nodes if n["provision_state"] == "active")
    url = fleet.site.urls[f"{LENT}/host"]
    for path, answer in list(ironic.answers.items()):
        text = json.dumps(answer)
        text = text.replace("ADMX0GP328W8N1", machine.host.serial).replace(node["name"], LENT)
        ironic.answers[path] = json.loads(text)
    for other in ironic.nodes:
        if other["uuid"] == node["uuid"]:
            other["driver_info"]["redfish_address"] = url


@pytest.mark.slow
@pytest.mark.long
def test_other_systems_hosts_are_adopted_by_command_and_nothing_is_written(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    person = Person(tmp_path)
    with fleet.serve(), serve_ironic() as ironic:
        overlay = write_lists(tmp_path, fleet)
        lend(ironic, fleet)
        at = ("--data", "observe")
        csv = ("adopt", "base.yaml", "--from", "csv", "--source", "hosts.csv", *at)
        with person.observe(fleet, overlay):
            person.run("adopt", "base.yaml", *at)
            preview = person.run(*csv, code=1)
            assert LISTED in preview
            assert "Nothing was done" in preview
            rows = json.loads(person.run("node", "list", *at, "--json"))
            assert not any(r["id"] in VRFS for r in rows)

            person.run(*csv, "--apply", code=1)  # one row is refused
            person.run(
                "adopt", "base.yaml", "--from", "ironic", "--source", ironic.url,
                "--ports", "cables.csv", "--apply", *at, code=1,
            )  # fmt: skip
            rows = json.loads(person.run("node", "list", *at, "--json"))
            hosts = {r["id"]: r for r in rows if r["kind"] == "host"}
            assert set(hosts) == {LISTED, LENT}
            for host in hosts.values():
                assert (host["state"], host["tenant"], host["vrf"]) == ("released", "red", "RED")
                assert host["origin"] == "adopted"
                assert not host["certificate"]
            mode = json.loads(person.run("mode", *at, "--json"))
            assert mode["mode"] == "observe"
    assert {method for method, _, _ in ironic.log} == {"GET"}
    writes = {(m, p) for m, p in fleet.requests if m not in ("GET", "HEAD")}
    assert all("/SessionService/Sessions" in path for _, path in writes), writes
    assert fleet.read_state() == fleet.before
