"""`provisioner certificate`: exported here, verified there, with nothing but the public key."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path

import pytest
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.certificate import Certificate
from provisioner.model.node import Node, NodeKind, Placement, State

NODE = Node(
    id="n1",
    kind=NodeKind.HOST,
    state=State.CERTIFIED,
    placement=Placement.MAINTENANCE,
    certificate="c1",
)


def certificate(now: float) -> Certificate:
    return Certificate(
        id="c1", node="n1", release="r", profile="hgx", serials=("gpu/1=G1",),
        versions=(("host.bmc/host", "1.0"),), boot_id="b", location="rack1", ports=("leaf/swp1",),
        report_digest="d", matrix_digest="m", checks=("ecc",), evidence=("e",),
        issued_at=float(int(now)) - 60, expires_at=float(int(now)) + 3600,
    )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with open_data(tmp_path / "var", 1.0) as data:
            node = await data.store.nodes.add(NODE)
            operation = await data.store.operations.open("n1", "certify", 1.0)
            assert operation is not None
            operation = await data.store.operations.take(operation.id)
            signed = data.signer.sign(certificate(time.time()))
            await data.store.operations.record(operation, node=node, certificate=signed, now=2.0)
            await data.store.nodes.add(NODE.model_copy(update={"id": "n2", "certificate": ""}))

    asyncio.run(fill())
    return tmp_path


def said(site: Path, *words: str, code: int = 0) -> str:
    done = run(["certificate", *words], site)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def elsewhere(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another machine: it has the exported files, and no data directory."""
    folder = tmp_path_factory.mktemp("elsewhere")
    said(site, "export", "n1", "--out", "n1.json")
    said(site, "revocations", "--out", "revoked.json")
    (folder / "key.pem").write_text(said(site, "keys", "--pem"))
    for name in ("n1.json", "revoked.json"):
        shutil.copy(site / name, folder / name)
    return folder


def test_an_exported_certificate_is_verified_elsewhere(elsewhere: Path) -> None:
    out = said(elsewhere, "verify", "n1.json", "--key", "key.pem")
    told = said(
        elsewhere,
        "verify",
        "n1.json",
        "--key",
        "key.pem",
        "--revocations",
        "revoked.json",
        "--json",
    )

    assert "valid: n1 until" in out
    assert "revocation was not checked" in out
    document = json.loads(told)
    assert document["valid"] is True
    assert document["revocations_checked"] is True
    assert document["certificate"]["serials"] == ["gpu/1=G1"]


def test_a_revoked_certificate_is_refused_by_the_newer_list(site: Path, elsewhere: Path) -> None:
    said(site, "revoke", "n1", "--reason", "the GPU was swapped", "--yes")
    said(site, "revocations", "--out", str(elsewhere / "newer.json"))

    verify = ("verify", "n1.json", "--key", "key.pem", "--revocations")
    assert said(elsewhere, *verify, "revoked.json")
    assert "the GPU was swapped" in said(elsewhere, *verify, "newer.json", code=1)
    assert "it was revoked" in said(site, "show", "n1")


def test_a_changed_certificate_is_not_valid(elsewhere: Path) -> None:
    document = json.loads((elsewhere / "n1.json").read_text())
    document["signatures"][0]["sig"] = document["signatures"][0]["sig"][::-1]
    (elsewhere / "forged.json").write_text(json.dumps(document))

    forged = run(["certificate", "verify", "forged.json", "--key", "key.pem"], elsewhere)
    assert forged.returncode in (1, 2)
    assert "valid: n1" not in forged.stdout


def test_an_old_key_verifies_until_it_is_withdrawn(site: Path, elsewhere: Path) -> None:
    said(site, "rotate", "--yes")
    assert "not valid" not in said(site, "show", "n1")
    (elsewhere / "both.pem").write_text(said(site, "keys", "--pem"))
    assert "valid: n1" in said(elsewhere, "verify", "n1.json", "--key", "both.pem")

    said(site, "rotate", "--compromised", "--yes")

    assert "no key that is believed" in said(site, "show", "n1")
    rows = json.loads(said(site, "keys", "--json"))
    assert [row["standing"].split()[0] for row in rows] == ["signs", "withdrawn", "withdrawn"]
    (elsewhere / "new.pem").write_text(said(site, "keys", "--pem"))
    assert "no trusted key" in said(elsewhere, "verify", "n1.json", "--key", "new.pem", code=1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("show", "n2"), "no such certificate"),
        (("show", "n9"), "no such certificate"),
        (("verify", "none.json", "--key", "key.pem"), "no such file"),
        (("verify", "key.pem", "--key", "key.pem"), "no DSSE envelope"),
        (("verify", "revoked.json", "--key", "key.pem"), "no statement"),
        (("verify", "n1.json", "--key", "n1.json"), "no public key"),
        (
            ("verify", "n1.json", "--key", "key.pem", "--revocations", "n1.json"),
            "no revocation list",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_a_remedy(
    site: Path, elsewhere: Path, words: tuple[str, ...], reason: str
) -> None:
    shutil.copy(elsewhere / "key.pem", site / "key.pem")

    assert reason in said(site, *words, code=4 if words[0] == "show" else 2)
