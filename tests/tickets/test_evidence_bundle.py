"""The archive for a vendor: the same bytes each time, nothing secret, and any change is found."""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telling import CASE, telling

from provisioner.integrations.signed_files.bundle_reading import (
    NotABundle,
    envelope_of,
    list_bundle_objections,
    unpack_bundle,
)
from provisioner.planning.watch.log_text import scrub_text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    async def main() -> tuple[bytes, bytes]:
        world = await telling(tmp_path_factory.mktemp("case"))
        case = await world.case()
        both = [await world._bundler.make_archive(case, 2.0) for _ in range(2)]
        await world.store.close()
        return both[0], both[1]

    return asyncio.run(main())


def altered(content: bytes, name: str, text: bytes | None) -> bytes:
    members = dict(unpack_bundle(content))
    if text is None:
        del members[name]
    else:
        members[name] = text
    return packed(members)


def packed(members: dict[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue())


def test_the_same_case_gives_the_same_bytes(made: tuple[bytes, bytes]) -> None:
    assert made[0] == made[1]


def test_it_has_case_evidence_journal_and_a_manifest_of_all(made: tuple[bytes, bytes]) -> None:
    members = unpack_bundle(made[0])
    envelope = envelope_of(members)

    assert list_bundle_objections(members, envelope.payload) == ()
    assert {"case.json", "evidence/logs/host.txt", "journal.jsonl", "work.txt"} <= set(members)
    assert CASE.id.encode() in members["manifest.json"]


def test_a_password_of_the_node_is_nowhere_in_it(made: tuple[bytes, bytes]) -> None:
    members = unpack_bundle(made[0])

    assert not [name for name, content in members.items() if b"hunter2" in content]
    assert b"[removed]" in members["evidence/logs/host.txt"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("case.json", b"{}", "was changed"),
        ("evidence/logs/host.txt", None, "is missing"),
        ("more.txt", b"x", "was added"),
        ("manifest.json", b"{}", "not the signed one"),
    ],
)
def test_any_change_is_found(
    made: tuple[bytes, bytes], name: str, content: bytes | None, words: str
) -> None:
    members = unpack_bundle(altered(made[0], name, content))
    found = list_bundle_objections(members, envelope_of(members).payload)

    assert words in " ".join(found)


def linked() -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    return gzip.compress(plain.getvalue())


@pytest.mark.parametrize(
    "content",
    [
        packed({"../up": b""}),
        packed({"/etc/passwd": b""}),
        linked(),
        gzip.compress(b"no tar"),
        b"no gzip",
        gzip.compress(b"") + b"tail",
    ],
    ids=["above", "absolute", "link", "no tar", "no gzip", "tail"],
)
def test_a_hostile_archive_is_refused_and_nothing_is_written(content: bytes) -> None:
    with pytest.raises(NotABundle):
        envelope_of(unpack_bundle(content))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_archive_or_refused(content: bytes) -> None:
    for tried in (content, gzip.compress(content)):
        try:
            envelope_of(unpack_bundle(tried))
        except NotABundle:
            continue


@pytest.mark.parametrize(
    "text",
    [
        "password: s3cr3tvalue",
        'PASSWORD="s3cr3tvalue"',
        '{"Password": "s3cr3tvalue"}',
        '{\\"api_key\\": \\"s3cr3tvalue\\"}',
        "X-Auth-Token: s3cr3tvalue",
        "Authorization: Basic s3cr3tvalue",
        "curl https://root:s3cr3tvalue@10.0.0.1/redfish",
        "-----BEGIN RSA PRIVATE KEY-----\ns3cr3tvalue\n-----END RSA PRIVATE KEY-----",
        "root:$6$salt$s3cr3tvalues3cr3tvalues3cr3tvalue:19000",
        "snmp community=s3cr3tvalue",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    clean, removed = scrub_text(text)

    assert "s3cr3tvalue" not in clean
    assert removed >= 1


def test_ordinary_words_of_logs_stay() -> None:
    text = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.\ntokens 5\n"

    assert scrub_text(text) == (text, 0)
