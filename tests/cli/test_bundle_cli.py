"""`provisioner bundle`: made at one site, verified and unpacked at another with its public key."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from program import Done, run

from provisioner.daemon.data import open_data
from provisioner.store.signing import public_pem

FIRMWARE = b"firmware"
SHA256 = hashlib.sha256(FIRMWARE).hexdigest()
MATRIX = f"""\
schema: 1
releases:
  new:
    profiles:
      node:
        match: {{gpu_models: ["*H100*"]}}
        pins:
          nic.cx7: {{version: "2.0", artifact: nic.bin, sha256: {SHA256}}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with open_data(tmp_path / "var", 1.0) as data:
            (tmp_path / "site.pem").write_text(public_pem(data.signer.public_key))

    asyncio.run(fill())
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "nic.bin").write_bytes(FIRMWARE)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "gpu_provisioner-0.1.0-py3-none-any.whl").write_bytes(b"wheel")
    (tmp_path / "wheels" / "notes.txt").write_bytes(b"no wheel")
    return tmp_path


def create(site: Path, *words: str) -> Done:
    given = ["--matrix", "matrix.yaml", "--wheels", "wheels", *words]
    return run(["bundle", "create", "site.bundle", *given], site)


def test_a_bundle_goes_from_one_site_to_another(site: Path):
    made = create(site, "--json")
    assert made.returncode == 0, made.stderr
    verified = run(["bundle", "verify", "site.bundle", "--key", "site.pem", "--json"], site)
    unpacked = run(["bundle", "unpack", "site.bundle", "--key", "site.pem", "--into", "out"], site)

    assert unpacked.returncode == 0, unpacked.stderr
    assert json.loads(made.stdout) == json.loads(verified.stdout)
    found = sorted(p.name for p in (site / "out").rglob("*") if p.is_file())
    assert found == ["0-matrix.yaml", "gpu_provisioner-0.1.0-py3-none-any.whl", "nic.bin"]


def test_a_file_that_is_not_what_the_matrix_pins_is_never_packed(site: Path):
    (site / "artifacts" / "nic.bin").write_bytes(b"other")
    done = create(site, "--partial")

    assert done.returncode == 2
    assert "the matrix pins" in done.stderr
    assert not (site / "site.bundle").exists()


def test_a_pinned_file_that_nobody_has_stops_it_unless_asked_to_go_on(site: Path):
    (site / "artifacts" / "nic.bin").unlink()
    stopped = create(site)
    tried = create(site, "--partial", "--dry-run")

    assert (stopped.returncode, tried.returncode) == (2, 0)
    assert "they are not there" in stopped.stderr
    assert "not in it: nic.bin" in tried.stdout
    assert not (site / "site.bundle").exists()


def test_keys_that_are_none_or_anothers_are_refused(site: Path):
    create(site)
    (site / "no.pem").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    (site / "empty.pem").write_text("")
    other = public_pem(Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    (site / "other.pem").write_text(other)
    done = [
        run(["bundle", "verify", "site.bundle", "--key", name], site)
        for name in ("no.pem", "empty.pem", "other.pem")
    ]

    assert [d.returncode for d in done] == [2, 2, 2]
    assert "no key that is trusted signed it" in done[2].stderr


def test_a_signature_that_needs_a_second_person_is_fetched_by_its_request(site: Path):
    words = ["bundle", "create", "site.bundle", "--matrix", "matrix.yaml"]
    waiting = run(words, site, api_four_eyes=["bundle.seal"])

    assert waiting.returncode == 3
    assert "--request r1" in waiting.stderr
    assert not (site / "site.bundle").exists()


def test_a_signed_list_packs_the_files_that_it_names_and_no_others(site: Path):
    assert create(site).returncode == 0
    (site / "site.bundle").unlink()
    again = create(site, "--request", "r1")
    other = create(site, "--request", "r1", "--site", "elsewhere")

    assert again.returncode == 0, again.stderr
    assert other.returncode == 2
    assert "it is for other files" in other.stderr


def test_a_dry_run_asks_no_daemon(site: Path):
    shown = create(site, "--dry-run", "--server", "https://localhost:1", "--json")

    assert shown.returncode == 0, shown.stderr
    assert len(json.loads(shown.stdout)["files"]) == 3
