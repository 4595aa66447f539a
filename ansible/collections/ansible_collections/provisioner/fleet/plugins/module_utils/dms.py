"""Run-time settings of a NIC through DOCA's management service: dmsd serves, dmsc is its client.

Paths, argument forms and JSON are those of NVIDIA's nic-configuration-operator (pkg/dms/client.go).
The service listens on the loopback only, and only while a play runs, because it has no password.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import (
    Missing,
    Refused,
    Unreadable,
    read,
    write,
)

FOLDER = "/opt/mellanox/doca/services/dms"
PRIORITIES = range(8)
START_LIMIT_S = 30.0
TRUE = frozenset({"true", "1"})
_PATH = re.compile(r"^(/[a-z][a-z0-9_-]*(\[id=\d{1,3}\])?)+$")
_VALUE = re.compile(r"^[A-Za-z0-9_.-]{1,64}$")
TYPES = ("string", "bool", "int")


def require_settings(settings):
    """Refuse settings that are not a path, a plain value and a known type."""
    for setting in settings:
        good = _PATH.match(setting["path"]) and _VALUE.match(setting["value"])
        if not good or setting["type"] not in TYPES:
            raise Refused(f"{setting!r} is not a run-time setting"[:200])


def expand_paths(path, interface):
    """Return the paths of a setting on an interface: one, or one for each priority."""
    named = path.replace("/interface/", f"/interface[name={interface}]/", 1)
    if "/priority/" not in named:
        return [named]
    return [named.replace("/priority/", f"/priority[id={i}]/", 1) for i in PRIORITIES]


def is_same_value(setting, value):
    """Return whether a value matches a setting; the service treats true and 1 as equal."""
    expected = setting["value"].lower()
    if setting["type"] == "bool":
        return (value.lower() in TRUE) == (expected in TRUE)
    return value.lower() in (expected, setting.get("also", "").lower() or expected)


def parse_values(text):
    """Return path (without a leading "/") -> value, from `dmsc get`. Raises `Unreadable`."""
    values = {}
    try:
        for item in json.loads(text[text.index("[") :]):
            for update in item["updates"]:
                (value,) = update["values"].values()
                values[str(update["Path"]).lstrip("/")] = str(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("dmsc printed no values") from None
    return values


class Service:
    """Runs dmsd for some cards while the block runs; dmsc connects to `address`."""

    def __init__(self, devices, folder=FOLDER):
        self._devices = devices
        self._folder = folder
        self._process = None
        self.address = ""

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"localhost:{free.getsockname()[1]}"
        argv = [self._folder + "/dmsd", "-bind_address", self.address]
        argv += ["-target_pci", ",".join(self._devices)]
        argv += ["-auth", "credentials", "-noauth", "-tls_enabled=false"]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            raise Missing(f"{argv[0]} is not installed") from None
        try:
            self._wait_until_ready()
        except Refused:
            self.__exit__()
            raise
        return self

    def _wait_until_ready(self):
        port = int(self.address.rpartition(":")[2])
        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise Refused(f"dmsd ended with {self._process.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return
            time.sleep(0.1)
        raise Refused("dmsd does not answer")

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _client(self, device):
        return [
            self._folder + "/dmsc",
            "-a",
            self.address,
            "--insecure",
            "--target",
            device,
            "--timeout",
            "300s",
        ]

    def get(self, device, interface, settings):
        """Return (setting, path, value) of every path of the settings."""
        queries = [(s, path) for s in settings for path in expand_paths(s["path"], interface)]
        argv = [*self._client(device), "get"]
        for _, path in queries:
            argv += ["--path", path]
        values = parse_values(read(argv, limit_s=320.0))
        missing = [path for _, path in queries if path.lstrip("/") not in values]
        if missing:
            raise Unreadable(f"dmsc returned no value of {missing[0]}")
        return [(setting, path, values[path.lstrip("/")]) for setting, path in queries]

    def set(self, device, updates, lock):
        """Write updates of (path, type, value) in this order."""
        argv = [*self._client(device), "set"]
        for path, kind, value in updates:
            argv += ["--update", f"{path}:::{kind}:::{value}"]
        write(argv, lock)
