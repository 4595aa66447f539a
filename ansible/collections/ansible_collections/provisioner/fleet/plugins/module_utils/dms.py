"""Run-time settings of a NIC through DOCA's management service: dmsd on this host, dmsc asks it.

Paths, argument forms and JSON are those of NVIDIA's nic-configuration-operator (pkg/dms/client.go).
The service listens on the loopback only, and only while a play runs: it has no password.
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


def check(settings):
    """Refuse settings that are not a path, a plain value and a known type."""
    for setting in settings:
        good = _PATH.match(setting["path"]) and _VALUE.match(setting["value"])
        if not good or setting["type"] not in TYPES:
            raise Refused(f"{setting!r} is no run-time setting"[:200])


def addressed(path, interface):
    """The paths that a setting of an interface stands for: one, or one for each priority."""
    named = path.replace("/interface/", f"/interface[name={interface}]/", 1)
    if "/priority/" not in named:
        return [named]
    return [named.replace("/priority/", f"/priority[id={i}]/", 1) for i in PRIORITIES]


def same(setting, value):
    """Whether a value that was read is the wanted one: true and 1 are the same to the service."""
    wanted = setting["value"].lower()
    if setting["type"] == "bool":
        return (value.lower() in TRUE) == (wanted in TRUE)
    return value.lower() in (wanted, setting.get("also", "").lower() or wanted)


def parse(text):
    """Path without a leading "/" to value, from `dmsc get`; raises `Unreadable`."""
    found = {}
    try:
        for item in json.loads(text[text.index("[") :]):
            for update in item["updates"]:
                (value,) = update["values"].values()
                found[str(update["Path"]).lstrip("/")] = str(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("dmsc prints no values") from None
    return found


class Service:
    """dmsd for some cards while the block runs; `address` is where dmsc finds it."""

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
            self._wait()
        except Refused:
            self.__exit__()
            raise
        return self

    def _wait(self):
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
        return [self._folder + "/dmsc", "-a", self.address, "--insecure", "--target", device,
                "--timeout", "300s"]  # fmt: skip

    def get(self, device, interface, settings):
        """(setting, path, value) of every path that the settings stand for."""
        wanted = [(s, path) for s in settings for path in addressed(s["path"], interface)]
        argv = [*self._client(device), "get"]
        for _, path in wanted:
            argv += ["--path", path]
        values = parse(read(argv, limit_s=320.0))
        missing = [path for _, path in wanted if path.lstrip("/") not in values]
        if missing:
            raise Unreadable(f"dmsc gives no value of {missing[0]}")
        return [(setting, path, values[path.lstrip("/")]) for setting, path in wanted]

    def set(self, device, updates, lock):
        """Write (path, type, value) in this order."""
        argv = [*self._client(device), "set"]
        for path, kind, value in updates:
            argv += ["--update", f"{path}:::{kind}:::{value}"]
        write(argv, lock)
