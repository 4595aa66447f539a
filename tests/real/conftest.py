"""A sushy-tools emulator over HTTPS, and an nginx that has a file, for modules that talk to one."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from buckets import filled
from emulated import PASSWORD
from nginx_server import Nginx
from object_store import ObjectStore
from outside_files import serving_files

from provisioner.integrations.sim.hardware.clock import make_certificate

EMULATOR = Path(sys.executable).with_name("sushy-emulator")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an emulator with its own certificate that wants a password."""
    if not EMULATOR.exists():
        pytest.skip("no sushy-tools beside this interpreter: make setup")
    folder = tmp_path_factory.mktemp("sushy")
    cert, key = make_certificate("sushy", "127.0.0.1")
    (folder / "cert.pem").write_bytes(cert)
    (folder / "key.pem").write_bytes(key)
    digest = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    (folder / "htpasswd").write_text(f"admin:{digest}\n")
    (folder / "config").write_text(f"SUSHY_EMULATOR_AUTH_FILE = {str(folder / 'htpasswd')!r}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(EMULATOR), "--fake", "-i", "127.0.0.1", "-p", str(port)]
    command += ["--config", str(folder / "config")]
    command += ["--ssl-certificate", str(folder / "cert.pem"), "--ssl-key", str(folder / "key.pem")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nginx]:
    """An nginx that has the file of `outside_files`."""
    with serving_files(tmp_path) as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The artifact directory of who fetches from it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A real object store with the file of `outside_files`. Its packages must be there."""
    with filled(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def url(store: ObjectStore) -> str:
    """Of the bucket that we may read."""
    return f"{store.origin}/firmware"
