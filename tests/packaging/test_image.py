"""The container image: umoci, which others wrote, unpacks it, and crun runs it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from test_package import EPOCH, WALK, require_index

from delivery.archive import pack_tree
from delivery.image import FIRMWARE, STATE, USER, add_layer, build_image, write_layout
from delivery.release import build_release

# crun takes cgroups of one version only; the namespace's own mount has the second one alone
RUN = """\
set -e
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
crun() { command crun --root "$1/state" --cgroup-manager=disabled "${@:2}"; }
crun "$1" run --bundle "$1/bundle" daemon >"$1/log" 2>&1 &
for second in $(seq 60); do grep -q serving "$1/log" && break; sleep 1; done
data=/var/lib/provisioner/data
command crun --root "$1/state" exec --user USER daemon provisioner node list --json --data $data
command crun --root "$1/state" exec --user USER daemon id
[ -z "$2" ] || command crun --root "$1/state" exec --user USER daemon sh -c "$2"
command crun --root "$1/state" kill daemon TERM
wait %1
""".replace("USER", f"{USER}:{USER}")


def require(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not here (apt-get install {tool})")


def make_small_layout(place: Path) -> Path:
    """Write an image of one folder with two files and a link."""
    tree = place / "root" / "opt"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "run").write_text("#!/bin/sh\n")
    (tree / "bin" / "run").chmod(0o700)
    (tree / "text").write_text("text")
    (tree / "link").symlink_to("text")
    layout = place / "layout"
    (layout / "blobs" / "sha256").mkdir(parents=True)
    pack_tree(tree, place / "layer.tar", EPOCH)
    layer = add_layer(layout, place / "layer.tar", "a test")
    write_layout(layout, (layer,), "1.0", "amd64", EPOCH)
    return layout


def test_each_blob_is_named_by_its_digest_and_the_same_tree_gives_the_same_image(tmp_path: Path):
    layouts = [make_small_layout(tmp_path / name) for name in ("one", "two")]
    blobs = [
        {str(p.relative_to(layout)): p.read_bytes() for p in layout.rglob("*") if p.is_file()}
        for layout in layouts
    ]

    assert blobs[0] == blobs[1]
    named = {n: c for n, c in blobs[0].items() if n.startswith("blobs/")}
    assert len(named) == 3
    assert all(n.endswith(hashlib.sha256(content).hexdigest()) for n, content in named.items())


def test_umoci_unpacks_what_was_packed(tmp_path: Path):
    require("umoci")
    layout = make_small_layout(tmp_path)
    bundle = tmp_path / "bundle"
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    subprocess.run(
        ["umoci", "unpack", *rootless, "--image", f"{layout}:1.0", bundle],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    process = json.loads((bundle / "config.json").read_text())["process"]

    assert (bundle / "rootfs/opt/bin/run").stat().st_mode & 0o777 == 0o755
    assert (bundle / "rootfs/opt/link").read_text() == "text"
    assert process["user"] == {"uid": USER, "gid": USER}
    assert process["args"][:2] == ["/opt/provisioner/bin/provisioner", "serve"]


def serve_image(
    place: Path, files: Mapping[str, str], arguments: Sequence[str], inside: str = ""
) -> str:
    """Build the image, put `files` into it, and serve with these further arguments under crun.

    `inside` is a line of shell that the image's user runs beside the daemon. Returns what the
    commands inside it printed; fails if the daemon does not serve.
    """
    if os.geteuid() != 0:
        pytest.skip("the image's Debian is put together as root")
    for tool in ("mmdebstrap", "umoci", "crun"):
        require(tool)
    require_index()
    release = place / "release"
    build_release(release, EPOCH)
    with tarfile.open(build_image(release, EPOCH)) as archive:
        archive.extractall(place / "layout")  # `filter` came with Python 3.11.4
    (version,) = json.loads((place / "layout" / "index.json").read_text())["manifests"]
    name = version["annotations"]["org.opencontainers.image.ref.name"]
    subprocess.run(
        ["umoci", "unpack", "--image", f"{place / 'layout'}:{name}", place / "bundle"],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    for path, text in files.items():
        file = place / "bundle" / "rootfs" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    config = place / "bundle" / "config.json"
    described = json.loads(config.read_text())
    described["process"]["terminal"] = False
    described["process"]["args"] = [described["process"]["args"][0], *arguments]
    config.write_text(json.dumps(described))
    ran = subprocess.run(
        ["unshare", "--mount", "bash", "-c", RUN, "run", place, inside],
        capture_output=True, text=True, timeout=1100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr + (place / "log").read_text()
    return ran.stdout


@pytest.mark.long
def test_the_image_serves_as_its_own_user_and_leads_it_to_a_rehearsed_site(tmp_path: Path):
    served = ["serve", "--data", f"{STATE}/data", "--artifacts", FIRMWARE, "--lab"]
    walk = f"mkdir {STATE}/walk && sh /walk.sh provisioner {STATE}/walk"
    printed = serve_image(tmp_path, {"/walk.sh": WALK.read_text()}, served, walk)

    assert f"uid={USER}(provisioner)" in printed
    assert "ended with 0: rehearse\nwalked\n" in printed
