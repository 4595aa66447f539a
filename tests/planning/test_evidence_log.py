"""The evidence log: trees, notes and overlaps, held against vectors and a verifier of others.

Leaves and roots are those of certificate-transparency's reference implementation
(https://github.com/transparency-dev/merkle, testonly/constants.go), the note is that of
https://pkg.go.dev/golang.org/x/mod/sumdb/note. `pymerkle` is another implementation of RFC 9162.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pymerkle import InmemoryTree

from provisioner.integrations.signed_files.log_proofs import (
    NotALog,
    describe_proof,
    has_grown,
    is_included,
    is_note_signed,
    list_log_objections,
    list_overlaps,
    open_checkpoint,
    parse_bundle,
)
from provisioner.planning.certification.evidence_log import (
    KINDS,
    Checkpoint,
    EntryBundle,
    EntryKind,
    Growth,
    LogEntry,
    ProvenEntry,
    Range,
    blind,
    build_entry,
    cut_to_tenant,
    encode_entry,
    fold_subtrees,
    hash_leaf,
    hash_pair,
    list_subtrees,
    plan_consistency,
    plan_inclusion,
    salt_of,
    write_checkpoint,
)
from provisioner.store.signing import Signer

LEAVES = (
    *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
    "606162636465666768696a6b6c6d6e6f",
)
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
PUBLIC = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")[1:]
SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
SIGNATURE = (
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)
ROW = "a" * 64
SECRET = "5e" * 32


class Tree:
    """All leaves in memory."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.hashes = [hash_leaf(leaf) for leaf in leaves]

    def subtree(self, level: int, place: int) -> bytes:
        hashes = self.hashes[place << level : (place + 1) << level]
        while len(hashes) > 1:
            hashes = [hash_pair(*hashes[i : i + 2]) for i in range(0, len(hashes), 2)]
        return hashes[0]

    def hash_range(self, span: Range) -> bytes:
        return fold_subtrees([self.subtree(*key) for key in list_subtrees(*span)])

    def head(self, size: int) -> Checkpoint:
        return Checkpoint("log", size, self.hash_range((0, size)))

    def inclusion(self, index: int, size: int) -> list[bytes]:
        return [self.hash_range(span) for span in plan_inclusion(index, size)]

    def growth(self, old: int, size: int) -> list[bytes]:
        return [self.hash_range(span) for span in plan_consistency(old, size)]


def test_roots_are_those_of_the_reference_implementation() -> None:
    tree = Tree([bytes.fromhex(leaf) for leaf in LEAVES])

    assert tuple(tree.head(size).root.hex() for size in range(9)) == ROOTS


def test_each_proof_up_to_forty_leaves_holds_and_no_changed_one_does() -> None:
    leaves = [b"%d" % n for n in range(40)]
    tree = Tree(leaves)
    for size in range(1, 41):
        head = tree.head(size)
        for index in range(size):
            path = tree.inclusion(index, size)
            leaf = tree.hashes[index]
            assert is_included(leaf, index, head, path)
            assert not is_included(hash_leaf(b"other"), index, head, path)
            assert not is_included(leaf, index, head, [*path, ROW.encode()[:32]])
            assert not path or not is_included(leaf, index, head, path[:-1])
            assert not is_included(leaf, size, head, path)
        for old in range(size + 1):
            path = tree.growth(old, size)
            before = tree.head(old)
            assert has_grown(before, head, path)
            if old > 0:
                forged = before._replace(root=b"x" * 32)
                assert not has_grown(forged, head, path)
            for n in range(len(path)):
                assert not has_grown(before, head, [*path[:n], b"x" * 32, *path[n + 1 :]])
            assert old == size or not has_grown(head, before, path)


GROWTH = {  # those of testonly/reference_test.go of the same project
    (6, 8): (
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 5): (
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}


@pytest.mark.parametrize("sizes", GROWTH)
def test_proofs_of_growth_are_those_of_the_reference_implementation(sizes: Range) -> None:
    tree = Tree([bytes.fromhex(leaf) for leaf in LEAVES])

    assert tuple(step.hex() for step in tree.growth(*sizes)) == GROWTH[sizes]


def test_another_implementation_agrees_on_roots_and_verifies_the_same_paths() -> None:
    leaves = [b"%d" % n for n in range(33)]
    ours, theirs = Tree(leaves), InmemoryTree(algorithm="sha256")
    for leaf in leaves:
        theirs.append_entry(leaf)
    for size in (1, 2, 7, 8, 31, 33):
        assert theirs.get_root(size) == ours.head(size).root
        for index in range(size):
            proof = theirs.prove_inclusion(index + 1, size)
            assert [h for h in proof.path if h != ours.hashes[index]] == ours.inclusion(index, size)


def test_a_note_is_signed_and_verified_as_the_go_project_publishes_it() -> None:
    signer = Signer(Ed25519PrivateKey.from_private_bytes(SEED))
    note = f"{TEXT}\n\N{EM DASH} PeterNeumann {SIGNATURE}\n"
    known = {"key": PUBLIC}

    assert signer.sign_note("PeterNeumann", TEXT) == note
    assert is_note_signed(TEXT, "PeterNeumann", base64.b64decode(SIGNATURE), known)
    assert not is_note_signed(TEXT + "!", "PeterNeumann", base64.b64decode(SIGNATURE), known)
    assert not is_note_signed(TEXT, "Other", base64.b64decode(SIGNATURE), known)
    assert not is_note_signed(TEXT, "PeterNeumann", b"", known)


KEY = Signer(Ed25519PrivateKey.from_private_bytes(SEED))
GOOD = KEY.sign_note("log", write_checkpoint("log", 3, bytes(32)))


def _open(note: str) -> Checkpoint:
    trusted = {"key": PUBLIC}
    return open_checkpoint(note, lambda text, name, by: is_note_signed(text, name, by, trusted))


def test_a_checkpoint_with_a_witness_beside_the_site_is_read() -> None:
    assert _open(GOOD) == Checkpoint("log", 3, bytes(32))
    assert _open(GOOD + "\N{EM DASH} witness AAAAAAAA\n") == Checkpoint("log", 3, bytes(32))


@pytest.mark.parametrize(
    "note",
    [
        "",
        "log\n3\n",
        GOOD.replace("\n3\n", "\n4\n"),
        GOOD.replace("\n3\n", "\n-3\n"),
        GOOD.replace("\n3\n", "\n\N{ARABIC-INDIC DIGIT THREE}\n"),
        GOOD.replace("log\n", "other\n", 1),
        GOOD.split("\n\n")[0] + "\n\n",
        GOOD.split("\n\n")[0] + "\n\n- log AAAA\n",
        GOOD.split("\n\n")[0] + "\n\n\N{EM DASH} log ====\n",
        KEY.sign_note("log", "log\n3\nAAAA\n"),
        KEY.sign_note("log", "log\n3\n\N{SNOWMAN}\n"),
        GOOD + "x" * 20_000,
    ],
)
def test_a_checkpoint_in_another_form_or_unsigned_is_refused(note: str) -> None:
    with pytest.raises(NotALog):
        _open(note)


def _bundle(
    entries: Sequence[LogEntry], kept: Sequence[int], old: int = 0
) -> tuple[EntryBundle, Tree]:
    tree = Tree([encode_entry(entry) for entry in entries])
    size = len(entries)
    proven = tuple(
        ProvenEntry(
            index=index,
            entry=entries[index],
            path=tuple(step.hex() for step in tree.inclusion(index, size)),
        )
        for index in kept
    )
    since = Growth(size=old, path=tuple(s.hex() for s in tree.growth(old, size))) if old else None
    return EntryBundle(checkpoint="", node="n1", entries=proven, since=since), tree


def _entry(kind: EntryKind, previous: int, tenant: str = "", node: str = "n1") -> LogEntry:
    own = blind(salt_of(SECRET, tenant), tenant) if tenant else ""
    at = f"2026-11-29T00:00:{previous + 1:02}.000000Z"
    return LogEntry(kind=kind, node=node, at=at, previous=previous, tenant=own, row=ROW)


LIFE = [
    _entry(EntryKind.CERTIFIED, -1),
    _entry(EntryKind.ENTERED, 0, "red"),
    _entry(EntryKind.CERTIFIED, -1, node="n2"),
    _entry(EntryKind.LEFT, 1),
    _entry(EntryKind.ERASED, 3),
    _entry(EntryKind.CERTIFIED, 4),
    _entry(EntryKind.ENTERED, 5, "blue"),
]
OF_N1 = [0, 1, 3, 4, 5, 6]


def test_a_nodes_life_is_proved_and_each_way_to_forge_it_is_found() -> None:
    bundle, tree = _bundle(LIFE, OF_N1, old=3)
    head, known = tree.head(7), tree.head(3)
    assert list_log_objections(bundle, head, known) == []
    assert "the log only grew since its 3 entries that were known" in describe_proof(
        bundle, head, known
    )
    assert any("NOT CHECKED" in line for line in describe_proof(bundle, head, None))

    def wrong(**changes: object) -> list[str]:
        return list_log_objections(bundle.model_copy(update=changes), head, known)

    without_left = tuple(p for p in bundle.entries if p.index != 3)
    renamed = bundle.entries[1].entry.model_copy(update={"tenant": "0" * 64})
    swapped = (bundle.entries[1].model_copy(update={"entry": renamed}), *bundle.entries[2:])
    assert any("left out" in line for line in wrong(entries=without_left))
    assert any("another tenant's network" in line for line in wrong(entries=without_left))
    assert any("not in the log" in line for line in wrong(entries=swapped))
    assert any("not about n9" in line for line in wrong(node="n9"))
    assert any("--since 3" in line for line in wrong(since=None))
    assert any("not those of" in line for line in wrong(since=Growth(size=3, path=("0" * 64,))))
    longer = known._replace(size=9)
    assert any("had 9 entries" in line for line in list_log_objections(bundle, head, longer))
    other = known._replace(origin="other")
    assert any("another log" in line for line in list_log_objections(bundle, head, other))


def test_a_tenant_gets_its_own_time_and_what_led_to_it_and_no_one_elses() -> None:
    numbered = [(index, LIFE[index]) for index in OF_N1]
    blue, red, green = (blind(salt_of(SECRET, name), name) for name in ("blue", "red", "green"))

    assert [index for index, _ in cut_to_tenant(numbered, red)] == [0, 1, 3]
    assert [index for index, _ in cut_to_tenant(numbered, blue)] == [4, 5, 6]
    assert cut_to_tenant(numbered, green) == []


@pytest.mark.parametrize(
    ("life", "shown"),
    [
        ("entered:red left certified entered:blue left", [0, 1]),
        ("entered:red retired certified entered:blue left", [0, 1]),
        ("entered:red refused erased certified entered:blue left", [0, 1]),
        ("entered:red refused left erased entered:blue", [0, 1, 2]),
        ("entered:red stray left entered:blue", [0, 1, 2]),
        ("adopted:red entered:blue left", [0, 1]),  # an overlap, which red is to see
        ("refused certified entered:red certified", [1, 2, 3]),
        ("refused certified attested entered:red attested left attested", [1, 2, 3, 4, 5]),
        ("entered:red left entered:blue retired certified entered:red retired left", [4, 5, 6, 7]),
    ],
)
def test_a_tenants_time_ends_as_its_ownership_does(life: str, shown: list[int]) -> None:
    entries = []
    for index, word in enumerate(life.split()):
        kind, _, tenant = word.partition(":")
        entries.append((index, _entry(EntryKind(kind), index - 1, tenant)))
    own = blind(salt_of(SECRET, "red"), "red")

    assert [index for index, _ in cut_to_tenant(entries, own)] == shown
    told = [i for i, e in entries if i in shown and e.tenant not in ("", own)]
    assert told in ([], [shown[-1]])


@given(st.lists(st.sampled_from([(k, t) for k in EntryKind for t in ("", "red", "blue")])))
def test_an_overlap_is_found_if_and_only_if_a_second_tenant_enters_before_the_first_left(
    life: list[tuple[EntryKind, str]],
) -> None:
    entering = (EntryKind.ENTERED, EntryKind.ADOPTED)
    entries = [
        _entry(kind, -1, (tenant or "red") if kind in entering else "") for kind, tenant in life
    ]
    inside: set[str] = set()
    overlaps = 0
    for entry in entries:
        if entry.kind in entering:
            overlaps += bool(inside - {entry.tenant})
            inside = {entry.tenant}
        elif entry.kind in (EntryKind.LEFT, EntryKind.REFUSED, EntryKind.RETIRED):
            inside = set()

    found = list_overlaps(entries)
    assert len([line for line in found if "another tenant" in line]) == overlaps
    strays = sum(e.kind is EntryKind.STRAY for e in entries)
    assert len([line for line in found if "unasked" in line]) == strays


@pytest.mark.parametrize(
    ("kind", "detail", "made"),
    [
        ("fence", {"confirmed": True, "placements": [{}]}, EntryKind.LEFT),
        ("fence", {"confirmed": True, "placements": []}, None),
        ("fence", {"confirmed": False, "placements": [{}]}, None),
        ("fence", {"confirmed": True, "ports": ["swp1"]}, None),
        ("adopted", {"tenant": ""}, None),
        ("adopted", {"tenant": "red"}, EntryKind.ADOPTED),
        ("released", {"tenant": "red", "proof": "b" * 64}, EntryKind.ENTERED),
        ("sanitized", {"report": "c" * 64}, EntryKind.ERASED),
        ("not_sanitized", {"report": "../etc"}, EntryKind.NOT_ERASED),
        ("certified", {"certificate": "unknown"}, EntryKind.CERTIFIED),
        ("attested", {"certificate": "c1", "state": "c" * 64}, EntryKind.ATTESTED),
        ("state", {"to": "released"}, None),
    ],
)
def test_only_what_was_read_back_becomes_an_entry(
    kind: str, detail: dict[str, object], made: EntryKind | None
) -> None:
    row = {"kind": kind, "node": "n1", "at": 1.0, "digest": ROW, "detail": detail}
    build = partial(build_entry, previous=-1, secret=SECRET, statements={})

    entry = build(row)
    assert (entry and entry.kind) == made
    assert build({**row, "node": ""}) is None
    assert entry is None or entry.evidence in ("", "b" * 64, "c" * 64)


def test_names_of_tenants_cannot_be_tried_without_their_salt() -> None:
    entered = LIFE[1].tenant

    assert entered == blind(salt_of(SECRET, "red"), "red")
    assert entered != blind(salt_of(SECRET, "blue"), "red")
    assert '"red"' not in encode_entry(LIFE[1]).decode()
    assert set(KINDS.values()) == set(EntryKind)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"type": "x"}', "[" * 100_000, '{"entries": "' + "x" * 99 + '"}']
)
def test_a_file_that_is_no_bundle_is_refused(text: str) -> None:
    with pytest.raises(NotALog):
        parse_bundle(text)


def test_a_bundle_is_read_as_it_was_written() -> None:
    bundle, _ = _bundle(LIFE, OF_N1, old=3)

    assert parse_bundle(bundle.model_dump_json()) == bundle
