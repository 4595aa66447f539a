"""Pebble, Let's Encrypt's test server of ACME, with a name server, on loopback: for tests."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from postgres_server import free_port

from provisioner.integrations.sim.hardware.clock import make_certificate

PROGRAMS = ("pebble", "pebble-challtestsrv", "certbot")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
NAME = "provisioner.example.com"
HOOK = Path(__file__).parents[2] / "docs" / "examples" / "certbot" / "deploy-hook"


@dataclass
class AcmeSite:
    """A directory of ACME, and certbot as its client."""

    folder: Path
    port: int
    management: int
    http_port: int

    @property
    def file(self) -> Path:
        """The certificate and key that certbot's hook writes."""
        return self.folder / "api.pem"

    def certify(self, *more: str) -> None:
        """Get a certificate, or renew it, as a person would."""
        folders = {name: str(self.folder / name) for name in ("config", "work", "logs")}
        command = ["certbot", "certonly", "--standalone", "--non-interactive", "--agree-tos"]
        command += ["--register-unsafely-without-email", "-d", NAME, *more]
        command += ["--http-01-port", str(self.http_port), "--deploy-hook", str(HOOK)]
        command += ["--server", f"https://127.0.0.1:{self.port}/dir"]
        for name, folder in folders.items():
            command += [f"--{name}-dir", folder]
        environ = {
            "PATH": os.environ["PATH"],
            "REQUESTS_CA_BUNDLE": str(self.folder / "cert.pem"),
            "PROVISIONER_CERTIFICATE": str(self.file),
            "PROVISIONER_GROUP": str(os.getgid()),
        }
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def read(self, path: str) -> str:
        trust = ssl.create_default_context(cafile=str(self.folder / "cert.pem"))
        url = f"https://127.0.0.1:{self.management}/{path}"
        with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
            return str(answer.read().decode())

    def root(self) -> str:
        """The authority that clients trust; a new one at each start of Pebble."""
        return self.read("roots/0")


@contextmanager
def running_acme(folder: Path) -> Iterator[AcmeSite]:
    folder.mkdir()
    dns = f"127.0.0.1:{free_port()}"
    site = AcmeSite(folder, free_port(), free_port(), free_port())
    cert, key = make_certificate("pebble", "127.0.0.1")
    (folder / "cert.pem").write_bytes(cert)
    (folder / "key.pem").write_bytes(key)
    pebble = {
        "listenAddress": f"127.0.0.1:{site.port}",
        "managementListenAddress": f"127.0.0.1:{site.management}",
        "certificate": str(folder / "cert.pem"),
        "privateKey": str(folder / "key.pem"),
        "httpPort": site.http_port,
        "tlsPort": 0,
    }
    (folder / "pebble.json").write_text(json.dumps({"pebble": pebble}))
    names = ["pebble-challtestsrv", "-dns01", dns, "-defaultIPv4", "127.0.0.1"]
    names += ["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""]
    names += ["-management", f"127.0.0.1:{free_port()}"]
    server = ["pebble", "-config", str(folder / "pebble.json"), "-dnsserver", dns]
    with ExitStack() as held:
        log = held.enter_context((folder / "log").open("wb"))
        environ = {"PATH": os.environ["PATH"], "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_AUTHZREUSE": "0"}
        for command in (names, server):
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
            held.callback(process.wait, 20)
            held.callback(process.terminate)
        deadline = time.monotonic() + 30
        while True:
            try:
                site.root()
                break
            except OSError:
                assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
                time.sleep(0.1)
        yield site
