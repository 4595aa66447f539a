"""What a tenant is told of its libraries: from the matrix, and nothing where nobody says it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from provisioner.model.matrix import UNKNOWN, LibraryNeed, Matrix, Requirement
from provisioner.model.node import Node, NodeKind
from provisioner.model.recovery import RowVerdict
from provisioner.model.tenant import LibraryMinimum
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.matrix.standing import list_library_minimums
from provisioner.planning.release import tenant_login as login

NODE = Node(id="h0", kind=NodeKind.HOST)
FILE = Path(__file__).parents[2] / "firmware_matrix.yaml"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return parse([(str(FILE), FILE.read_text())])


def tell(matrix: Matrix, release: str, profile: str) -> dict[str, tuple[str, str]]:
    told = list_library_minimums(matrix, release, profile)
    return {one.library: (one.minimum, one.tested) for one in told}


@pytest.mark.parametrize(
    ("release", "profile", "told"),
    [
        # the rule of firmware 32.44 counts for this release, whose pins have that firmware
        ("spectrum-x-1.3.0", "hgx-h100-bf3", ("2.15.1", "", "2.9.1", "2.10.0-0.5.3", "11.8")),
        # ... and there is no such rule here: a tested version does not stand for a minimum
        ("spectrum-x-1.2.0", "hgx-h200-bf3", ("2.15.1", "", UNKNOWN, "2.9.0-0.4.7", "11.8")),
        ("spectrum-x-2.1.2", "hgx-b200-bf3", ("2.25.1", "2.29.2", UNKNOWN, "3.3.0-088814", "12.8")),
    ],
)
def test_shipped_releases_tell_what_their_documents_say(
    matrix: Matrix, release: str, profile: str, told: tuple[str, str, str, str, str]
) -> None:
    nccl, nccl_tested, doca, doca_tested, cuda = told

    assert tell(matrix, release, profile) == {
        "nccl": (nccl, nccl_tested),
        "doca": (doca, doca_tested),
        "cuda": (cuda, ""),
    }


def test_each_shipped_host_profile_has_a_minimum_with_a_source(matrix: Matrix) -> None:
    for name, release in matrix.releases.items():
        for profile_name, profile in release.profiles.items():
            for one in list_library_minimums(matrix, name, profile_name):
                if one.minimum != UNKNOWN or one.tested:
                    assert all(url.startswith("https://") for url in one.evidence), one
                    assert one.evidence, (name, profile_name, one)
                elif any("H" in m or "B" in m for m in profile.match.gpu_models):
                    assert one.library == "doca", (name, profile_name, one)
                # of trays without a GPU model (Rubin) nobody says anything yet


def test_nothing_is_guessed_for_a_switch_or_a_release_that_is_not_there(matrix: Matrix) -> None:
    for release, profile in (("spectrum-x-1.3.0", "sn5600"), ("no-such", "x"), ("", "")):
        told = tell(matrix, release, profile)
        assert set(told) == {"nccl", "doca", "cuda"}
        assert {minimum for minimum, _ in told.values()} == {UNKNOWN}, (release, told)


def test_a_need_for_some_of_a_profiles_models_is_not_told_for_all(matrix: Matrix) -> None:
    release = matrix.releases["spectrum-x-1.3.0"]
    profile = release.profiles["hgx-h100-bf3"]
    match = profile.match.model_copy(update={"gpu_models": ("*H100*", "*L40S*")})
    mixed = profile.model_copy(update={"match": match})
    wider = release.model_copy(update={"profiles": {"p": mixed}})
    changed = matrix.model_copy(update={"releases": {"r": wider}})

    assert tell(changed, "r", "p")["cuda"] == (UNKNOWN, "")


def test_the_highest_bound_counts_and_only_of_rules_that_hold_at_the_pins(matrix: Matrix) -> None:
    release = matrix.releases["spectrum-x-2.1.2"]

    def rule(when: str, needs: str) -> Requirement:
        return Requirement(
            name=needs, when={"bluefield.nic": when}, needs={"host.nccl": needs}, reason=needs
        )

    rules = (
        rule(">=32.40.1000", ">=2.26.2,<3"),
        rule(">=32.40.1000", ">=2.9.9"),
        rule("<32.40.1000", ">=9"),
        rule(">=32.40.1000", "==2.27.1"),
    )
    changed = matrix.model_copy(
        update={"releases": {"r": release.model_copy(update={"requires": rules})}}
    )

    (nccl, *_) = list_library_minimums(changed, "r", "hgx-h100-bf3")

    assert (nccl.minimum, nccl.why) == ("2.26.2", ">=2.26.2,<3")

    strange = {"r": release.model_copy(update={"requires": (rule(">=32.40.1000", ">=v3~x"),)})}
    told = list_library_minimums(
        matrix.model_copy(update={"releases": strange}), "r", "hgx-h100-bf3"
    )
    assert told[0].minimum == UNKNOWN
    assert "cannot be compared" in told[0].why


MINIMUMS = (
    LibraryMinimum(library="nccl", minimum="2.25.1", tested="2.29.2", why="it's $(new)"),
    LibraryMinimum(library="doca", minimum=UNKNOWN),
    LibraryMinimum(library="cuda", minimum="12.8"),
)


def run(line: str, folder: Path) -> str:
    """Run the line with a folder of the test in place of the host's own."""
    there = line.replace(login.LIBRARIES_FOLDER, str(folder))
    return subprocess.run(
        ["sh", "-c", there], capture_output=True, text=True, check=True, timeout=20
    ).stdout


def test_the_files_of_the_metadata_are_written_and_proved_by_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "minimum-versions"
    folder.mkdir()
    (folder / "old").write_text("of another tenant")

    text = run(login.build_minimums(MINIMUMS), folder)

    row = login.judge_minimums(NODE, MINIMUMS, text)
    assert (row.verdict, row.seen) == (
        RowVerdict.PASS,
        f"in its metadata: {'; '.join(str(one) for one in MINIMUMS)}",
    )
    assert sorted(p.name for p in folder.iterdir()) == ["all.json", "cuda", "doca", "nccl"]
    assert (folder / "doca").read_text() == "unknown\n"
    assert json.loads((folder / "all.json").read_text())[0]["why"] == "it's $(new)"
    assert login.judge_minimums(NODE, MINIMUMS[:1], text).verdict is RowVerdict.FAIL


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (None, RowVerdict.UNKNOWN),
        ("", RowVerdict.UNKNOWN),
        (f"minimums {hashlib.sha256(b'').hexdigest()}\n", RowVerdict.UNKNOWN),
        (f"minimums {hashlib.sha256(b'').hexdigest()}\n{login.END}\n", RowVerdict.FAIL),
        (f"{login.END}\n", RowVerdict.FAIL),
    ],
)
def test_an_answer_that_is_cut_off_or_of_other_files_is_no_proof(
    text: str | None, verdict: RowVerdict
) -> None:
    assert login.judge_minimums(NODE, MINIMUMS, text).verdict is verdict


def test_the_matrix_refuses_a_need_without_a_version_or_a_model() -> None:
    base = FILE.read_text()
    for need in (
        '{gpu_models: ["*L40*"], version: unknown, says: x, evidence: y}',
        '{gpu_models: [], version: "12", says: x, evidence: y}',
        '{gpu_models: ["*L40*"], version: "1\\n2", says: x, evidence: y}',
    ):
        over = f"libraries: {{cuda: [{need}]}}\n"
        with pytest.raises(Exception, match="libraries"):
            parse([(str(FILE), base), ("site.yaml", over)])
    more = 'libraries: {cuda: [{gpu_models: ["*L40*"], version: "12", says: x, evidence: y}]}\n'
    merged = parse([(str(FILE), base), ("site.yaml", more)])
    assert (
        LibraryNeed(gpu_models=("*L40*",), version="12", says="x", evidence="y")
        in (merged.libraries["cuda"])
    )
