"""OpenStack Ironic from PyPI, standalone on loopback, as the peer of `bench_intake.py`.

One process (API and conductor), no authentication, SQLite, no message bus: the configuration that
Ironic's own documentation gives for standalone use. Nothing of it is changed on disk; with
`pbkdf2_rounds` a `sitecustomize` beside it undoes the password hash per Redfish object (600,000
rounds since commit 3d6c083cd, 40 before), so that a comparison does not rest on that one cost.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import local
from typing import Any
from uuid import UUID

sys.path.append(str(Path(__file__).parents[2]))

from delivery.tools import read_last_lines, run_tool

PINS = ("ironic==39.0.0", "sushy==5.14.0")
VERSION = {"X-OpenStack-Ironic-API-Version": "1.113", "Content-Type": "application/json"}
CLIENTS = 16  # threads that speak to its API; it refuses nothing at this number
START_S = 120.0
AWAY = 503
LATER = (409, AWAY)  # locked, or no free conductor worker: Ironic's way to say "later"

CONFIGURATION = """\
[DEFAULT]
auth_strategy = noauth
rpc_transport = none
host = peer
my_ip = 127.0.0.1
state_path = {work}/state
log_file = {work}/ironic.log
enabled_hardware_types = redfish
enabled_bios_interfaces = redfish,no-bios
default_bios_interface = no-bios
enabled_boot_interfaces = redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = custom-agent,direct
default_deploy_interface = custom-agent
enabled_firmware_interfaces = redfish
default_firmware_interface = redfish
enabled_inspect_interfaces = redfish
default_inspect_interface = redfish
enabled_management_interfaces = redfish
enabled_network_interfaces = noop
default_network_interface = noop
enabled_power_interfaces = redfish
enabled_raid_interfaces = no-raid
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor
[api]
host_ip = 127.0.0.1
port = {port}
[conductor]
automated_clean = false
deploy_kernel = file://{work}/kernel
deploy_ramdisk = file://{work}/ramdisk
[database]
connection = sqlite:///{work}/ironic.sqlite
[dhcp]
dhcp_provider = none
[oslo_messaging_notifications]
driver = noop
[sensor_data]
send_sensor_data = false
[service_catalog]
auth_type = none
endpoint_override = http://127.0.0.1:{port}
[deploy]
http_root = {work}/http
[pxe]
tftp_root = {work}/tftp
[oslo_concurrency]
lock_path = {work}/lock
"""

# What PBKDF2 costs is asked for by the number of rounds alone: the rest of the call stays.
FEWER_ROUNDS = """\
import hashlib, os
_whole = hashlib.pbkdf2_hmac
def _fewer(name, password, salt, iterations, dklen=None):
    if iterations == 600000:
        iterations = int(os.environ["PEER_PBKDF2_ROUNDS"])
    return _whole(name, password, salt, iterations, dklen)
hashlib.pbkdf2_hmac = _fewer
"""


@dataclass(frozen=True)
class Bmc:
    """One BMC as it is enrolled."""

    url: str
    system: str
    username: str
    password: str
    inspected: bool = True


class Ironic:
    """A running Ironic. `stop` ends it and all that it started."""

    def __init__(
        self,
        environment: Path,
        work: Path,
        port: int,
        pbkdf2_rounds: int = 0,
        settings: str = "",
    ) -> None:
        self._bin, self._work, self._port = environment / "bin", work, port
        self._settings = settings  # more sections of its configuration
        self._rounds = pbkdf2_rounds
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = local()

    # --- life

    def start(self) -> None:
        """Raises RuntimeError if it does not answer."""
        for name in ("state", "http", "tftp", "lock"):
            (self._work / name).mkdir(parents=True)
        for name in ("kernel", "ramdisk"):
            (self._work / name).write_text(name)
        file = self._work / "ironic.conf"
        text = CONFIGURATION.format(work=self._work, port=self._port)
        file.write_text(text + self._settings)
        environment = dict(os.environ, PYTHONWARNINGS="ignore")
        with (self._work / "ironic.out").open("wb") as out:
            create = (self._bin / "ironic-dbsync", "--config-file", file, "create_schema")
            run_tool(*create, environment=environment)
            if self._rounds:
                (self._work / "patch").mkdir()
                (self._work / "patch" / "sitecustomize.py").write_text(FEWER_ROUNDS)
                environment["PYTHONPATH"] = str(self._work / "patch")
                environment["PEER_PBKDF2_ROUNDS"] = str(self._rounds)
            self._process = subprocess.Popen(
                (self._bin / "ironic", "--config-file", file),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )
        end = time.monotonic() + START_S
        # the API answers before the conductor has registered its drivers
        while time.monotonic() < end and self._process.poll() is None:
            if self._ask("GET", "/v1/drivers/redfish")[0] == 200:
                return
            time.sleep(0.3)
        told = "".join(read_last_lines(self._work / f"ironic.{name}") for name in ("log", "out"))
        raise RuntimeError(f"Ironic did not start{told}")

    @property
    def pid(self) -> int:
        """Its first process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """End it, by force after a while."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
            break

    # --- work

    def enrol(self, bmcs: Sequence[Bmc], limit_s: float) -> dict[str, int]:
        """From nothing to `available`: manage, inspect, provide. States at the end, counted.

        Where a BMC is not to be `inspected` it comes by `manage` and `provide` alone.
        """
        ids = [str(UUID(int=n + 1)) for n in range(len(bmcs))]
        by_id = dict(zip(ids, bmcs, strict=True))
        end = time.monotonic() + limit_s
        self._every(lambda i: self._create(i, by_id[i], end), ids)
        for verb, good, bad in (
            ("manage", "manageable", "enroll"),
            ("inspect", "manageable", "inspect failed"),
            ("provide", "available", "clean failed"),
        ):
            moved = [i for i in ids if verb != "inspect" or by_id[i].inspected]
            self._every(partial(self._move, verb, end, {}), moved)
            self._wait(len(ids), (good, bad), end)
        return self._states()

    def update(self, ids: Sequence[str], url: str, limit_s: float) -> dict[str, int]:
        """One BIOS update on each of these `available` nodes, by Ironic's own service steps."""
        end = time.monotonic() + limit_s
        update = {"component": "bios", "url": url}
        step = {"interface": "firmware", "step": "update", "args": {"settings": [update]}}
        for verb, good, more in (
            ("manage", ("manageable",), {}),
            ("adopt", ("active", "adopt failed"), {}),
            (
                "service",
                ("active", "service failed"),
                {"service_steps": [step], "disable_ramdisk": True},
            ),
        ):
            self._every(partial(self._move, verb, end, more), ids)
            self._wait(len(ids), good, end)
        return self._states()

    # --- its API

    def _create(self, node: str, bmc: Bmc, end: float) -> None:
        info = {
            "redfish_address": bmc.url,
            "redfish_system_id": bmc.system,
            "redfish_username": bmc.username,
            "redfish_password": bmc.password,
            "redfish_verify_ca": False,
        }
        body = {"uuid": node, "driver": "redfish", "driver_info": info}
        status, answer = self._ask("POST", "/v1/nodes", body)
        while status == AWAY and time.monotonic() < end:
            time.sleep(1)
            status, answer = self._ask("POST", "/v1/nodes", body)
            status = 201 if status == 409 else status  # the connection broke after it was made
        if status != 201:
            raise RuntimeError(f"Ironic refused a node: {status} {answer}")

    def _move(self, verb: str, end: float, more: Mapping[str, Any], node: str) -> None:
        path, body = f"/v1/nodes/{node}/states/provision", {"target": verb, **more}
        status, answer = self._ask("PUT", path, body)
        while status in LATER and time.monotonic() < end:
            time.sleep(1)
            status, answer = self._ask("PUT", path, body)
        if status != 202:
            raise RuntimeError(f"Ironic refused {verb}: {status} {answer}")

    def nodes(self) -> list[dict[str, Any]]:
        """Each node's states, as its API tells them; none while it breaks connections off."""
        fields = "uuid,provision_state,reservation,last_error,power_state,maintenance"
        status, answer = self._ask("GET", f"/v1/nodes?limit=1000&fields={fields}")
        return list(answer["nodes"]) if status == 200 else []

    def _states(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for node in self.nodes():
            counted[node["provision_state"]] = counted.get(node["provision_state"], 0) + 1
        return counted

    def _wait(self, count: int, wanted: Sequence[str], end: float) -> None:
        while time.monotonic() < end:
            rested = [n for n in self.nodes() if not n["reservation"]]
            if sum(n["provision_state"] in wanted for n in rested) == count:
                return
            time.sleep(1)
        raise RuntimeError(f"Ironic did not end in time: {self._states()}")

    def _every(self, work: Callable[[str], None], ids: Sequence[str]) -> None:
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(work, ids))

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        connection = getattr(self._thread, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
            self._thread.connection = connection
        try:
            connection.request(method, path, data, VERSION)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._thread.connection = None
            return AWAY, str(error)
        return response.status, json.loads(text) if text else None


def install(environment: Path) -> None:
    """A virtual environment with Ironic; made on first use, a few minutes."""
    if (environment / "bin" / "ironic").exists():
        return
    run_tool(sys.executable, "-m", "venv", environment)
    run_tool(environment / "bin" / "pip", "-q", "install", *PINS)
