"""The scripts that decide what the ramdisk trusts and what is unpacked into it, run for real."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from images import iso
from images.ramdisk import ELEMENTS

TRUST = ELEMENTS / "provisioner-trust/static/usr/local/sbin/provisioner-trust"
DEBS = ELEMENTS / "provisioner-offline/bin/provisioner-check-debs"
BASE = "BOOT_IMAGE=/vmlinuz console=ttyS0 ipa-api-url=https://192.0.2.1:6385"

pytestmark = pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="needs openssl and ssh-keygen, as the ramdisk has them",
)


def authority() -> bytes:
    """A CA certificate, DER, with an elliptic curve key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provisioner agents")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
    built = built.not_valid_before(now).not_valid_after(now + timedelta(days=3650))
    ca = x509.BasicConstraints(ca=True, path_length=0)
    built = built.add_extension(ca, critical=True)
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def public_key() -> str:
    """The base64 field of an ed25519 public key."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line.decode().split()[1]


class Boot:
    """One boot's decision: the script with a command line and what is baked in."""

    def __init__(self, folder: Path) -> None:
        self.cmdline, self.baked, self.run = folder / "cmdline", folder / "etc", folder / "run"
        self.credential, self.agent = folder / "token.cred", folder / "agent.conf"
        self.baked.mkdir()

    def __call__(self, words: str) -> subprocess.CompletedProcess[str]:
        self.cmdline.write_text(f"{BASE} {words}\n")
        return subprocess.run(
            ["bash", TRUST, self.cmdline, self.baked, self.run, self.credential, self.agent],
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def boot(tmp_path):
    return Boot(tmp_path)


def der_of(pem: Path) -> bytes:
    certificate = x509.load_pem_x509_certificate(pem.read_bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


def test_ca_and_key_of_the_command_line_are_what_this_boot_trusts(boot):
    ca, key = authority(), public_key()

    ended = boot(f"provisioner-ca={base64.b64encode(ca).decode()} provisioner-ssh-key={key}")

    assert ended.returncode == 0, ended.stderr
    assert der_of(boot.run / "ca.pem") == ca
    assert f"ssh-ed25519 {key} " in (boot.run / "authorized_keys").read_text()
    assert (boot.run / "ssh_host_ed25519_key").stat().st_mode & 0o077 == 0


def test_they_fit_on_a_kernel_command_line():
    ca = base64.b64encode(authority()).decode()

    iso.require_cmdline(f"{BASE} provisioner-ca={ca} provisioner-ssh-key={public_key()}")


def test_the_command_line_replaces_what_is_baked_in(boot):
    baked, given = authority(), authority()
    pem = x509.load_der_x509_certificate(baked).public_bytes(serialization.Encoding.PEM)
    (boot.baked / "ca.pem").write_bytes(pem)

    assert boot("").returncode == 0
    assert der_of(boot.run / "ca.pem") == baked
    assert boot(f"provisioner-ca={base64.b64encode(given).decode()}").returncode == 0
    assert der_of(boot.run / "ca.pem") == given


@pytest.mark.parametrize(
    "words",
    [
        "",  # nothing given, nothing baked in
        "provisioner-ca=",
        "provisioner-ca=bm90IGEgY2VydGlmaWNhdGU=",
        "provisioner-ca=!!!",
    ],
)
def test_without_a_ca_it_fails_and_leaves_none(boot, words):
    assert boot(words).returncode != 0
    assert not (boot.run / "ca.pem").exists()


@pytest.mark.parametrize("key", ["AAAAB3NzaC1yc2EAAAADAQABAAAB", "x\\nssh-rsa", "AAAA"])
def test_a_key_of_another_kind_is_refused(boot, key):
    ca = base64.b64encode(authority()).decode()

    assert boot(f"provisioner-ca={ca} provisioner-ssh-key={key}").returncode != 0
    assert not (boot.run / "authorized_keys").exists()


def test_without_a_key_nobody_can_log_in(boot):
    assert boot(f"provisioner-ca={base64.b64encode(authority()).decode()}").returncode == 0

    assert not (boot.run / "authorized_keys").exists()  # sshd's condition to start


@pytest.mark.parametrize(
    ("text", "is_token"),
    [("t" * 60 + "....", True), (iso.BOOT_SLOT, False), ("short", False), ("a b" * 30, False)],
)
def test_the_token_of_a_signed_image_is_given_to_the_agent_unless_it_is_the_slot(
    boot, text, is_token
):
    boot.credential.write_text(text)
    boot.agent.write_text("of an earlier run")

    assert boot(f"provisioner-ca={base64.b64encode(authority()).decode()}").returncode == 0

    assert boot.agent.exists() is is_token
    if is_token:
        assert boot.agent.read_text() == f"[DEFAULT]\nagent_token = {text}\n"
        assert boot.agent.stat().st_mode & 0o777 == 0o600


def test_a_package_that_is_not_in_the_lock_stops_apt(tmp_path):
    good, bad, lock = tmp_path / "good.deb", tmp_path / "bad.deb", tmp_path / "lock"
    good.write_bytes(b"good")
    bad.write_bytes(b"bad")
    lock.write_text(f"good 1.0 {hashlib.sha256(b'good').hexdigest()}\n")

    def hook(*debs: Path) -> subprocess.CompletedProcess[str]:
        listing = "".join(f"{deb}\n" for deb in debs)
        environment = {"PROVISIONER_LOCK": str(lock), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            [DEBS], input=listing, capture_output=True, text=True, check=False, env=environment
        )

    assert hook(good).returncode == 0
    assert hook(good, bad).returncode == 1
    assert "not in the lock: bad.deb" in hook(bad).stderr
    assert hook(tmp_path / "missing.deb").returncode == 1


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb: apt-get install dpkg")
def test_without_a_lock_every_package_that_is_unpacked_is_written_down(tmp_path):
    control = tmp_path / "tree" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: example\nVersion: 1:2.0-3\nArchitecture: all\n"
        "Maintainer: nobody <nobody@example.org>\nDescription: example\n"
    )
    deb, record = tmp_path / "example.deb", tmp_path / "record"
    build = ["dpkg-deb", "--root-owner-group", "--build", control.parents[1], deb]
    subprocess.run(build, check=True, capture_output=True)
    environment = {
        "PROVISIONER_LOCK": str(tmp_path / "none"),
        "PROVISIONER_RECORD": str(record),
        "PATH": "/usr/bin:/bin",
    }

    ended = subprocess.run(
        [DEBS], input=f"{deb}\n", text=True, capture_output=True, check=False, env=environment
    )

    assert ended.returncode == 0, ended.stderr
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    assert record.read_text() == f"example 1:2.0-3 {digest}\n"
