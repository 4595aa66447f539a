"""Bundles come out as they went in, or not at all: signature, bytes, names, order, end."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from provisioner.integrations.air_gap_bundles import bundle_files as bundles
from provisioner.model.agent import MANIFEST, MANIFEST_PAYLOAD, BundleManifest
from provisioner.model.input_error import InputError
from provisioner.store.signing import Signer

SIGNER = Signer(Ed25519PrivateKey.generate())
KEYS = {SIGNER.key_id: SIGNER.public_key}
CONTENT = {
    "artifacts/gpu.fwpkg": b"firmware" * 1000,
    "artifacts/" + "n" * 150 + ".bin": b"",
    "matrix/0-firmware_matrix.yaml": b"releases: {}\n",
    "wheels/provisioner-0.1.0-py3-none-any.whl": b"\x00" * 512,
}


def seal(manifest: BundleManifest) -> str:
    return SIGNER.seal(MANIFEST_PAYLOAD, manifest.model_dump_json().encode())


def packed(tmp_path: Path) -> Path:
    files = {}
    for number, (path, content) in enumerate(CONTENT.items()):
        files[path] = tmp_path / f"source{number}"
        files[path].write_bytes(content)
    manifest = BundleManifest(site="here", made_at=1.0, files=bundles.list_files(files))
    bundles.pack(tmp_path / "site.bundle", seal(manifest), files)
    return tmp_path / "site.bundle"


def test_what_was_packed_is_unpacked(tmp_path: Path):
    bundle = packed(tmp_path)
    bundles.unpack(bundle, KEYS, tmp_path / "out")
    out = {
        str(p.relative_to(tmp_path / "out")): p.read_bytes()
        for p in (tmp_path / "out").rglob("*")
        if p.is_file()
    }

    assert out == CONTENT


def test_other_peoples_tar_reads_it_and_is_led_nowhere(tmp_path: Path):
    with tarfile.open(packed(tmp_path)) as archive:
        names = archive.getnames()
        digests = {
            name: hashlib.sha256(archive.extractfile(name).read()).hexdigest() for name in names[1:]
        }

    assert names[0] == MANIFEST
    assert all(name == f"files/{sha256}" for name, sha256 in digests.items())


def test_each_changed_bit_is_found_and_nothing_is_written(tmp_path: Path):
    bundle = packed(tmp_path)
    good = bundle.read_bytes()
    # a byte in every block that means something: headers, list and contents
    blocks = [n for n in range(0, len(good), 512) if good[n : n + 512].strip(b"\0")]
    for offset in blocks:
        broken = bytearray(good)
        broken[offset + 3] ^= 0x20
        bundle.write_bytes(broken)
        with pytest.raises(InputError):
            bundles.unpack(bundle, KEYS, tmp_path / "out")

    assert len(blocks) > 15
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_cut_bundle_is_refused(tmp_path: Path, share: float):
    bundle = packed(tmp_path)
    whole = bundle.read_bytes().rstrip(b"\0")
    bundle.write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(InputError):
        bundles.verify(bundle, KEYS)


def test_a_bundle_of_somebody_else_is_refused(tmp_path: Path):
    other = Signer(Ed25519PrivateKey.generate())

    with pytest.raises(InputError, match="no key that is trusted"):
        bundles.verify(packed(tmp_path), {other.key_id: other.public_key})


def test_another_document_that_we_signed_is_no_list(tmp_path: Path):
    envelope = SIGNER.seal("application/vnd.in-toto+json", b"{}").encode()
    bundle = archive(tmp_path, [(MANIFEST, envelope, tarfile.REGTYPE)])

    with pytest.raises(InputError, match="no list of a bundle"):
        bundles.verify(bundle, KEYS)


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "artifacts/../x", "artifacts/.x", "artifacts/a/b", "etc/x", "artifacts/\n",
     "artifacts/", "artifacts/a\\b"],
)  # fmt: skip
def test_even_a_signed_list_leads_nowhere_else(tmp_path: Path, path: str):
    file = {"path": path, "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    listed = {"version": 1, "site": "here", "made_at": 1.0, "files": [file]}
    envelope = SIGNER.seal(MANIFEST_PAYLOAD, json.dumps(listed).encode()).encode()
    name = f"files/{file['sha256']}"
    members = [(MANIFEST, envelope, tarfile.REGTYPE), (name, b"x", tarfile.REGTYPE)]

    with pytest.raises(InputError, match="its list cannot be"):
        bundles.unpack(archive(tmp_path, members), KEYS, tmp_path / "out")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
)
def test_only_plain_files_are_read(tmp_path: Path, kind: bytes):
    with pytest.raises(InputError, match="no plain file"):
        bundles.verify(archive(tmp_path, [(MANIFEST, b"", kind)]), KEYS)


def test_what_follows_the_last_file_is_refused(tmp_path: Path):
    bundle = packed(tmp_path)
    bundle.write_bytes(bundle.read_bytes() + b"more")

    with pytest.raises(InputError, match="behind the last file"):
        bundles.verify(bundle, KEYS)


def test_it_is_not_unpacked_over_something(tmp_path: Path):
    bundle = packed(tmp_path)
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InputError, match="there already"):
        bundles.unpack(bundle, KEYS, tmp_path / "out")


def test_a_file_that_changes_while_it_is_packed_leaves_no_bundle(tmp_path: Path):
    source = tmp_path / "gpu.fwpkg"
    source.write_bytes(b"old")
    files = {"artifacts/gpu.fwpkg": source}
    manifest = BundleManifest(site="here", made_at=1.0, files=bundles.list_files(files))
    source.write_bytes(b"new")

    with pytest.raises(InputError, match="SHA-256"):
        bundles.pack(tmp_path / "site.bundle", seal(manifest), files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gpu.fwpkg"]


def archive(tmp_path: Path, members: list[tuple[str, bytes, bytes]]) -> Path:
    with tarfile.open(tmp_path / "bad.bundle", "w", format=tarfile.GNU_FORMAT) as made:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd" if kind != tarfile.REGTYPE else ""
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return tmp_path / "bad.bundle"


def test_the_signature_is_over_the_list_as_others_verify_it(tmp_path: Path):
    with tarfile.open(packed(tmp_path)) as read:
        document = json.loads(read.extractfile(MANIFEST).read())
    payload = base64.b64decode(document["payload"])
    kind = document["payloadType"].encode()
    said = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    key = Ed25519PublicKey.from_public_bytes(SIGNER.public_key)

    assert key.verify(base64.b64decode(document["signatures"][0]["sig"]), said) is None
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(document["signatures"][0]["sig"]), said + b" ")
