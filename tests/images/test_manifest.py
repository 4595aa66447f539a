"""Two images from the same inputs have the same packages, and a command says so."""

from __future__ import annotations

import json

import pytest
import yaml

from images import build, manifest
from images.locks import BadInput
from images.manifest import BuiltFile, Manifest

DIGEST = "ab" * 32


def image(**changes: object) -> Manifest:
    fields: dict[str, object] = {
        "profile": "test",
        "agent_version": "13.0.0",
        "kernel": "6.1.0-56-amd64",
        "cmdline": "console=ttyS0",
        "inputs": {"lock/agent.lock": DIGEST},
        "debian": (f"apt 2.6.2 {DIGEST}", f"sed 4.9-1 {DIGEST}"),
        "python": ("ironic-python-agent==13.0.0", "pip==25.1.1"),
        "files": {"iso": BuiltFile(name="image.iso", sha256=DIGEST, size_bytes=3)},
    }
    return Manifest.model_validate(fields | changes)


def test_images_of_the_same_inputs_do_not_differ_though_their_files_do():
    other = image(files={"iso": BuiltFile(name="image.iso", sha256="cd" * 32, size_bytes=4)})

    assert manifest.compare(image(), other) == ()
    assert image().digest() != other.digest()


def test_every_difference_is_named():
    other = image(
        kernel="6.1.0-57-amd64",
        inputs={"lock/agent.lock": "cd" * 32},
        debian=(f"apt 2.6.3 {DIGEST}", f"sed 4.9-1 {DIGEST}"),
        python=("ironic-python-agent==13.0.1", "pip==25.1.1"),
    )

    assert manifest.compare(image(), other) == (
        "kernel: 6.1.0-56-amd64 and 6.1.0-57-amd64",
        "input lock/agent.lock differs",
        "apt: locked 2.6.2 abababababab, there is 2.6.3 abababababab",
        "python: only the first has ironic-python-agent==13.0.0",
        "python: only the second has ironic-python-agent==13.0.1",
    )


def test_a_manifest_reads_back_as_it_was_written(tmp_path):
    manifest.write(image(), tmp_path / "a.json")

    assert manifest.read(tmp_path / "a.json") == image()


@pytest.mark.parametrize("content", ["", "[]", '{"name": 1}', json.dumps({"more": 1})])
def test_what_is_no_manifest_is_refused_by_name(tmp_path, content):
    (tmp_path / "a.json").write_text(content)

    with pytest.raises(BadInput, match=r"a\.json"):
        manifest.read(tmp_path / "a.json")


def test_a_file_that_was_changed_after_the_build_is_named(tmp_path):
    iso = tmp_path / "image.iso"
    iso.write_bytes(b"iso")
    made = image(files={"iso": manifest.describe_file(iso)})
    manifest.check_files(made, tmp_path)

    iso.write_bytes(b"osi")

    with pytest.raises(BadInput, match=r"image\.iso"):
        manifest.check_files(made, tmp_path)


@pytest.mark.parametrize("name", ["../image.iso", "/etc/passwd", "missing.iso"])
def test_a_manifest_names_files_beside_it_only(tmp_path, name):
    made = image(files={"iso": BuiltFile(name=name, sha256=DIGEST, size_bytes=3)})

    with pytest.raises(BadInput):
        manifest.check_files(made, tmp_path)


def test_the_pin_for_an_overlay_is_the_manifests_digest_and_the_isos():
    pinned = yaml.safe_load(manifest.render_pin(image(), "built here"))["images"]["maintenance"]

    assert pinned == {
        "version": image().digest(),
        "artifact": "image.iso",
        "sha256": DIGEST,
        "evidence": "built here",
    }


def test_the_command_says_by_its_exit_code_whether_two_images_differ(tmp_path, capsys):
    manifest.write(image(), tmp_path / "a.json")
    manifest.write(image(kernel="6.1.0-57-amd64"), tmp_path / "b.json")

    same = build.main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")])
    differ = build.main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    missing = build.main(["compare", str(tmp_path / "a.json"), str(tmp_path / "c.json")])

    assert (same, differ, missing) == (0, 1, 2)
    assert "the same packages" in capsys.readouterr().out
