"""A release is the same bytes when it is built again, and is verified without a network.

minisign and sha256sum are Debian's own programs, called as docs/integrations/packaging.md writes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from delivery.lock import Package, read_packages, read_pins, write_requirements
from delivery.materials import write_materials
from delivery.release import SUMS, sign_sums, write_sums
from delivery.sources import ROOT, DeliveryError, copy_sources
from delivery.wheel import build_wheel

EPOCH = 1_700_000_000  # of the release, too


@pytest.fixture(scope="module")
def packages() -> tuple[Package, ...]:
    return read_packages()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with a minisign key pair without a password."""
    if shutil.which("minisign") is None:
        pytest.skip("minisign is not here (apt-get install minisign)")
    folder = tmp_path / "keys"
    folder.mkdir()
    pair = ["-p", folder / "public", "-s", folder / "secret"]
    subprocess.run(["minisign", "-G", "-W", *pair], check=True, capture_output=True, timeout=60)
    return folder


@contextmanager
def other_umask() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def test_a_wheel_built_elsewhere_later_and_with_another_umask_is_the_same(
    release: Path, tmp_path: Path
):
    with other_umask():
        source = copy_sources(tmp_path / "elsewhere")
        for path in source.rglob("*"):
            os.utime(path, (time.time(), time.time()), follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)
        again = build_wheel(tmp_path / "out", EPOCH, root=source)
    (first,) = release.glob("*.whl")

    assert again.name == first.name
    assert again.read_bytes() == first.read_bytes()


@pytest.mark.long
def test_a_changed_source_changes_the_wheel(release: Path, tmp_path: Path):
    source = copy_sources(tmp_path / "elsewhere")
    (source / "provisioner" / "py.typed").write_text("\n")
    (first,) = release.glob("*.whl")

    assert build_wheel(tmp_path / "out", EPOCH, root=source).read_bytes() != first.read_bytes()


def test_the_bill_of_materials_lists_what_the_program_needs_and_nothing_of_its_developers(
    release: Path, packages: tuple[Package, ...]
):
    bill = json.loads(next(release.glob("*.cdx.json")).read_text())
    named = {c["name"]: c for c in bill["components"]}
    needs = {d["ref"]: d.get("dependsOn", []) for d in bill["dependencies"]}

    assert set(named) == {p.name for p in packages}
    # what imports need, an extra's driver, and the requirement of a requirement
    assert {"aiohttp", "psycopg-binary", "yarl"} <= set(named)
    assert not {"pytest", "ruff", "mypy", "playwright", "sushy"} & set(named)
    assert any(ref.startswith("aiohttp==") for ref in needs["gpu-provisioner"])
    assert any(r.startswith("yarl==") for ref in needs if "aiohttp==" in ref for r in needs[ref])
    # every package is reached from the program
    reached, waiting = set(), ["gpu-provisioner"]
    while waiting:
        reached.add(ref := waiting.pop())
        waiting += [r for r in needs[ref] if r not in reached]
    assert reached == set(needs)
    assert all(
        digest["alg"] == "SHA-256" and len(digest["content"]) == 64
        for c in bill["components"]
        for digest in c["externalReferences"][0]["hashes"]
    )


def test_the_published_schema_refuses_a_bill_that_does_not_follow_it(release: Path):
    bill = json.loads(next(release.glob("*.cdx.json")).read_text())
    check = JsonStrictValidator(SchemaVersion.V1_6)
    good = check.validate_str(json.dumps(bill))
    bill["components"][0]["type"] = "python-package"

    assert good is None
    assert check.validate_str(json.dumps(bill)) is not None


def test_two_bills_of_one_lock_are_equal(packages: tuple[Package, ...]):
    bill = write_materials(packages, "1", EPOCH)

    assert bill == write_materials(packages, "1", EPOCH)
    serial = json.loads(bill)["serialNumber"]
    assert serial != json.loads(write_materials(packages, "2", EPOCH))["serialNumber"]


def test_the_packages_of_a_release_are_pinned_as_the_lock_pins_them(
    release: Path, packages: tuple[Package, ...]
):
    whole = read_pins((ROOT / "requirements.lock").read_text())
    pinned = read_pins(next(release.glob("*.requirements.txt")).read_text())

    assert pinned == {p.name: whole[p.name] for p in packages}
    assert all(digests for _, digests in pinned.values())
    assert write_requirements(()).startswith("#")


def test_a_signed_release_is_verified_and_each_change_is_refused(
    release: Path, tmp_path: Path, keys: Path
):
    here = shutil.copytree(release, tmp_path / "here")
    signature = sign_sums(here / SUMS, keys / "secret", "gpu-provisioner of a test")

    def verify() -> tuple[str, int]:
        signed = ["minisign", "-V", "-p", keys / "public", "-m", SUMS]
        listed = ["sha256sum", "--check", "--strict", "--quiet", SUMS]
        runs = [
            subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60)
            for command in (signed, listed)
        ]
        return runs[0].stdout, runs[0].returncode + 10 * runs[1].returncode

    assert "gpu-provisioner of a test" in verify()[0]
    assert verify()[1] == 0
    names = [line.split("  ")[1] for line in (here / SUMS).read_text().splitlines()]
    assert {SUMS, signature.name, *names} == {p.name for p in here.iterdir()}

    (wheel,) = here.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert verify()[1] == 10  # the list is signed, the wheel is another
    write_sums(here)
    assert verify()[1] == 1  # the wheel is listed, and the list is not signed


def test_a_key_that_is_not_there_signs_nothing(release: Path, tmp_path: Path, keys: Path):
    sums = Path(shutil.copy(release / SUMS, tmp_path / SUMS))

    with pytest.raises(DeliveryError, match="did not sign"):
        sign_sums(sums, keys / "none", "comment")
    assert not sums.with_name(SUMS + ".minisig").exists()
