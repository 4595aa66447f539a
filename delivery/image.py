"""Builds the container image as an OCI archive, without a daemon and without a registry.

The lower layer is a minimal Debian 12 that mmdebstrap puts together from signed packages; the upper
one is the tree of the Debian package. An image by the OCI specification is a few JSON documents and
the layers, each named by its digest: they are written here, so that every time in them is that of
the commit. Tests unpack the image with umoci and run it with crun, which others wrote.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from delivery.archive import pack_tree
from delivery.sources import NAME, DeliveryError, read_version, run_tool
from delivery.tree import HOME, build_tree

USER = 10001
STATE = "/var/lib/provisioner"
FIRMWARE = "/srv/firmware"
PACKAGES = ("python3.11", "ca-certificates", "openssh-client")
LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
KEPT = ("/usr/share/doc/*/copyright",)
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CHUNK = 1 << 20


@dataclass(frozen=True)
class Blob:
    """A file of the image: its type, its digest and its size."""

    kind: str
    digest: str
    size: int

    def describe(self) -> dict[str, Any]:
        """Return the descriptor by which other documents name the blob."""
        return {"mediaType": self.kind, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Layer:
    """A layer: the packed blob, the digest of its tar archive, and the step that made it."""

    blob: Blob
    unpacked: str
    step: str


def build_image(release: Path, epoch: int) -> Path:
    """Build the image from the release's wheel and packages, into the release's folder."""
    version = read_version()
    architecture = run_tool(["dpkg", "--print-architecture"]).strip()
    image = release / f"{NAME}_{version}_{architecture}.oci.tar"
    with tempfile.TemporaryDirectory() as folder:
        place, layout = Path(folder) / "root", Path(folder) / "layout"
        base, upper = Path(folder) / "base.tar", Path(folder) / "upper.tar"
        build_base(base, architecture, epoch)
        build_tree(place, release)
        pack_tree(place / HOME.parts[0], upper, epoch)
        (layout / "blobs" / "sha256").mkdir(parents=True)
        layers = (
            add_layer(layout, base, f"mmdebstrap bookworm {' '.join(PACKAGES)}"),
            add_layer(layout, upper, f"{NAME} {version} in /{HOME}"),
        )
        write_layout(layout, layers, version, architecture, epoch)
        pack_tree(layout, image, epoch, inside="")
    return image


def build_base(tar: Path, architecture: str, epoch: int) -> None:
    """Write a minimal Debian with our user and its folders as a tar archive (needs root)."""
    if shutil.which("mmdebstrap") is None:
        raise DeliveryError("mmdebstrap is not installed: apt-get install mmdebstrap")
    user = f"provisioner:x:{USER}:{USER}::{STATE}:/usr/sbin/nologin"
    hooks = (
        f'echo "{user}" >> "$1/etc/passwd"',
        f'echo "provisioner:x:{USER}:" >> "$1/etc/group"',
        f'install -d -m 0700 -o {USER} -g {USER} "$1{STATE}"',
        f'install -d -m 0755 "$1{FIRMWARE}"',
    )
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    options += [f"--dpkgopt=path-include={pattern}" for pattern in KEPT]
    options += [f"--customize-hook={hook}" for hook in hooks]
    run_tool(
        ["mmdebstrap", "--quiet", "--variant=essential", f"--architectures={architecture}",
         f"--include={','.join(PACKAGES)}", *options, "bookworm", str(tar)],
        SOURCE_DATE_EPOCH=str(epoch),
    )  # fmt: skip


def add_layer(layout: Path, tar: Path, step: str) -> Layer:
    """Pack the tar archive into the image, and return the layer."""
    unpacked = hashlib.sha256()
    packed = layout / "packed"
    with (
        tar.open("rb") as source,
        packed.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as target,
    ):
        while part := source.read(CHUNK):
            unpacked.update(part)
            target.write(part)
    with packed.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = packed.stat().st_size
    packed.rename(layout / "blobs" / "sha256" / digest)
    return Layer(Blob(LAYER, f"sha256:{digest}", size), f"sha256:{unpacked.hexdigest()}", step)


def add_document(layout: Path, kind: str, document: Mapping[str, Any]) -> Blob:
    """Write a JSON document into the image as a blob."""
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return Blob(kind, f"sha256:{digest}", len(content))


def write_layout(
    layout: Path, layers: tuple[Layer, ...], version: str, architecture: str, epoch: int
) -> None:
    """Write the configuration, the manifest and the index of the image."""
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    program = f"/{HOME}/bin/provisioner"
    labels = {
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "WorkingDir": STATE,
            "Env": [f"PATH=/{HOME}/bin:/usr/bin:/bin", f"HOME={STATE}"],
            "Entrypoint": [program],
            "Cmd": ["serve", "--data", f"{STATE}/data", "--artifacts", FIRMWARE],
            "ExposedPorts": {"8443/tcp": {}, "8070/tcp": {}, "6385/tcp": {}},
            "Volumes": {STATE: {}, FIRMWARE: {}},
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.unpacked for layer in layers]},
        "history": [{"created": created, "created_by": layer.step} for layer in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": add_document(layout, CONFIG, config).describe(),
        "layers": [layer.blob.describe() for layer in layers],
        "annotations": labels,
    }
    entry = add_document(layout, MANIFEST, manifest).describe()
    entry["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        # `podman load` names the image by it (nameFromAnnotations of containers/common)
        "io.containerd.image.name": f"localhost/{NAME}:{version}",
    }
    entry["platform"] = {"architecture": architecture, "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
    (layout / "index.json").write_text(json.dumps(index, sort_keys=True), encoding="utf-8")
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")
