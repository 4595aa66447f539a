"""What may go into the image: locks that are whole, and files that are none of theirs."""

from __future__ import annotations

import hashlib
import re

import pytest

from images import locks, ramdisk
from images.locks import BadInput, Package

DIGEST = "ab" * 32


def test_a_requirement_has_one_version_and_its_digests():
    text = f"zeroconf==0.154.0 \\\n    --hash=sha256:{DIGEST} \\\n    --hash=sha256:{'cd' * 32}\n"

    found = locks.parse_requirements(text, "agent.lock")

    assert found["zeroconf"].version == "0.154.0"
    assert found["zeroconf"].hashes == {DIGEST, "cd" * 32}


@pytest.mark.parametrize(
    "line",
    [
        "zeroconf==0.154.0",  # no digest
        f"zeroconf>=0.1 --hash=sha256:{DIGEST}",
        f"zeroconf @ git+https://example.org/zeroconf --hash=sha256:{DIGEST}",
        "--index-url https://example.org/simple",
        f"zeroconf==1 --hash=md5:{DIGEST}",
        "",
    ],
)
def test_a_lock_that_does_not_pin_is_refused(line: str):
    with pytest.raises(BadInput, match=r"agent\.lock"):
        locks.parse_requirements(line, "agent.lock")


def test_one_package_in_two_versions_is_refused():
    text = f"a==1 --hash=sha256:{DIGEST}\nA==2 --hash=sha256:{DIGEST}\n"

    with pytest.raises(BadInput, match="twice"):
        locks.parse_requirements(text, "agent.lock")


@pytest.mark.parametrize(
    "text",
    ["apt 2.6.2\n", f"apt 2.6.2 {DIGEST} more\n", "apt 2.6.2 nonsense\n", "a 1 -\na 1 -\n"],
)
def test_a_line_of_a_package_lock_that_is_none_is_refused_with_its_place(text: str):
    with pytest.raises(BadInput, match=r"debian\.lock, line \d"):
        locks.parse_packages(text, "debian.lock")


def test_differences_name_what_was_locked_and_what_is_there():
    old = {"apt": Package("apt", "2.6.1", DIGEST), "gone": Package("gone", "1", DIGEST)}
    new = {"apt": Package("apt", "2.6.2", DIGEST), "more": Package("more", "3", DIGEST)}

    lines = locks.find_differences(old, new)

    assert lines == (
        "apt: locked 2.6.1 abababababab, there is 2.6.2 abababababab",
        "gone: locked 1 abababababab, there is nothing",
        "more: locked nothing, there is 3 abababababab",
    )


def test_a_package_with_the_same_version_and_another_digest_differs():
    old, new = Package("apt", "2", DIGEST), Package("apt", "2", "cd" * 32)

    assert len(locks.find_differences({"apt": old}, {"apt": new})) == 1


def test_a_file_that_no_lock_has_is_named(tmp_path):
    good, bad = tmp_path / "good.whl", tmp_path / "bad.whl"
    good.write_bytes(b"wheel")
    bad.write_bytes(b"another")
    digest = hashlib.sha256(b"wheel").hexdigest()
    allowed = locks.parse_requirements(f"a==1 --hash=sha256:{digest}", "agent.lock")

    locks.verify([good], allowed)
    with pytest.raises(BadInput, match=r"bad\.whl"):
        locks.verify([good, bad], allowed)


def test_a_trees_digest_covers_names_modes_and_contents_and_nothing_that_tools_leave(tmp_path):
    script = tmp_path / "install.d" / "10-x"
    script.parent.mkdir()
    script.write_text("#!/bin/bash\n")
    before = locks.hash_tree(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert locks.hash_tree(tmp_path) == before

    script.chmod(0o755)
    executable = locks.hash_tree(tmp_path)
    script.rename(script.with_name("11-x"))

    assert len({before, executable, locks.hash_tree(tmp_path)}) == 3


def test_nothing_that_only_a_build_needs_stays_in_the_image():
    stays = ramdisk.read_lock(ramdisk.LOCKS / "debian.lock")
    built_with = ramdisk.read_lock(ramdisk.LOCKS / "debian-build.lock")
    script = ramdisk.ELEMENTS / "provisioner-offline/post-install.d/95-provisioner-slim"
    removed = re.search(r"unneeded=\((.*?)\)", script.read_text(), re.DOTALL)

    assert removed is not None
    names = set(removed[1].split())
    assert {"gcc", "packagekit", "software-properties-common", "linux-libc-dev"} <= names
    assert names <= built_with.keys()
    assert stays.keys().isdisjoint(names)
    assert not {name for name in stays if name.endswith("-dev")}
    assert stays.keys().isdisjoint(built_with)
