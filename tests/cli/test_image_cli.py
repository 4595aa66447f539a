"""`provisioner image`: a file is uploaded, listed, described and removed by its verbs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from local_daemon import daemon
from program import Done, alone

BYTES = b"\x1f\x8b" + bytes(3_000_000)


def image(place: Path, words: list[str]) -> Done:
    return alone(["image", *words, "--data", "var"], place)


def test_an_image_is_uploaded_listed_described_and_removed(tmp_path: Path) -> None:
    (tmp_path / "os.raw.gz").write_bytes(BYTES)
    sha256 = hashlib.sha256(BYTES).hexdigest()

    store = tmp_path / "store"
    store.mkdir()

    with daemon(tmp_path / "var", artifacts=store):
        tried = image(tmp_path, ["upload", "os.raw.gz", "--dry-run"])
        assert (tried.returncode, "is stored" in tried.stdout) == (0, True), tried
        assert not (store / "os.raw.gz").exists()

        sent = image(tmp_path, ["upload", "os.raw.gz", "--note", "v1"])
        assert (sent.returncode, f"sha256: {sha256}" in sent.stdout) == (0, True), sent
        assert (store / "os.raw.gz").read_bytes() == BYTES

        again = image(tmp_path, ["upload", "os.raw.gz", "--json"])
        assert json.loads(again.stdout)["result"]["there"] is True

        (tmp_path / "other").write_bytes(b"other bytes")
        taken = image(tmp_path, ["upload", "other", "--name", "os.raw.gz"])
        assert (taken.returncode, "Another file has this name" in taken.stderr) == (1, True), taken

        described = image(tmp_path, ["describe", "os.raw.gz", "v2"])
        assert described.returncode == 0, described
        listed = image(tmp_path, ["list", "--json"])
        rows = {row["name"]: row for row in json.loads(listed.stdout)}
        assert (rows["os.raw.gz"]["sha256"], rows["os.raw.gz"]["note"]) == (sha256, "v2")

        removed = image(tmp_path, ["remove", "os.raw.gz", "--yes"])
        assert (removed.returncode, (store / "os.raw.gz").exists()) == (0, False), removed
        absent = image(tmp_path, ["show", "os.raw.gz"])
        assert absent.returncode == 4


def test_files_of_the_data_directory_are_neither_listed_nor_removed(tmp_path: Path) -> None:
    with daemon(tmp_path / "var"):  # its artifacts are beside the database
        listed = image(tmp_path, ["list"])
        removed = image(tmp_path, ["remove", "provisioner.db", "--yes"])

    for refused in (listed, removed):
        assert (refused.returncode, "data directory" in refused.stderr) == (1, True), refused


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    absent = image(tmp_path, ["upload", "nowhere.iso"])
    assert (absent.returncode, "nowhere.iso" in absent.stderr) == (2, True)
