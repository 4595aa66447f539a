"""What a host says of mounts is read as a stranger's words: only a whole answer counts."""

from __future__ import annotations

import pytest

from provisioner.integrations.vast.mount_trials import judge_trial, list_mounts, write_trial
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.storage import SeenExport, SpaceState
from provisioner.ports import ShellOutput

OWN, OTHER = "192.0.2.10:/scratch", "192.0.2.10:/models"
OPEN, SHUT = GateCheck.STORAGE_OPEN, GateCheck.STORAGE_SHUT
PASS, FAIL, UNKNOWN = RowVerdict.PASS, RowVerdict.FAIL, RowVerdict.UNKNOWN


def space(*mounts: str) -> SpaceState:
    exports = {m: SeenExport(m, "/x", None, None, mount=m) for m in mounts}
    return SpaceState(handle="h", exports=exports)


def judged(stdout: str, code: int | None = 0, *, truncated: bool = False) -> list[tuple[str, str]]:
    seen = {"red": space(OWN), "blue": space(OTHER)}
    rows = judge_trial("n1", seen, ShellOutput(code, stdout, "", truncated))
    return [(row.check, row.verdict) for row in rows]


DENIED = f"mount {OTHER} 32 mount.nfs: access denied by server while mounting\n"


@pytest.mark.parametrize(
    ("stdout", "shown"),
    [
        (f"client mount\nmount {OWN} 0 \n{DENIED}", [(OPEN, PASS), (SHUT, PASS)]),
        # the mount went well, and root may not list the directory: it is open all the same
        (f"client mount\nmount {OWN} 0\nmount {OTHER} 3 denied\n", [(OPEN, PASS), (SHUT, FAIL)]),
        (
            f"client nfs-ls\nmount {OWN} 243 Failed to opendir()\nmount {OTHER} 254 no\n",
            [(OPEN, PASS), (SHUT, PASS)],
        ),
        (f"client mount\nmount {OWN} 124 \n{DENIED}", [(OPEN, FAIL), (SHUT, UNKNOWN)]),
        (f"client mount\n{DENIED}", [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]),
        ("client mount\n", [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]),
        ("", [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]),
        (f"mount {OWN} 0\n{DENIED}", [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]),
        ("sh: 1: Syntax error", [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]),
        (f"client mount\nmount {OWN} ok\nmount {OWN} 9999\n", [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]),
        ("client none\n", [(OPEN, RowVerdict.NONE)]),
    ],
)
def test_only_a_mount_that_was_made_shows_that_a_refusal_is_one(
    stdout: str, shown: list[tuple[str, str]]
) -> None:
    assert judged(stdout) == shown


def test_an_answer_that_did_not_end_shows_nothing() -> None:
    whole = f"client mount\nmount {OWN} 0\n{DENIED}"

    assert judged(whole, 1) == judged(whole, None) == [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]
    assert judged(whole, truncated=True) == [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]


@pytest.mark.parametrize(
    "stdout",
    [
        f"client mount\n{DENIED}mount {OWN} 3",  # of 32
        f"client mount\nmount {OWN} 0\n{DENIED}mount {OWN}",
        f"client mount\nmount {OWN} 0\n{DENIED}{'x' * 300_000}\n",
        f"client mount\nmount {OWN} 0\nmount {OWN} 32 denied\n{DENIED}",
        f"client mount\nmount {OWN} 32 denied\nmount {OWN} 0\n{DENIED}",
        "client none\nclient mount\n",
        "client none",
    ],
)
def test_a_line_that_is_cut_and_two_of_one_mount_show_nothing(stdout: str) -> None:
    assert judged(stdout) == [(OPEN, UNKNOWN), (SHUT, UNKNOWN)]


def test_a_mount_of_anothers_export_that_is_told_twice_is_not_called_refused() -> None:
    for others in (f"{DENIED}mount {OTHER} 0\n", f"mount {OTHER} 0\n{DENIED}"):
        told = judged(f"client mount\nmount {OWN} 0\n{others}")
        assert told == [(OPEN, PASS), (SHUT, UNKNOWN)]


@pytest.mark.parametrize(
    "mount",
    ["192.0.2.10:/a b", "192.0.2.10:/$(id)", "-o:/x", "192.0.2.10:/x;id", "x:/`id`", "/x", "h:x",
     "192.0.2.10:/x\nid", "'h:/x", "h:/ü"],
)  # fmt: skip
def test_words_that_are_no_mount_come_into_no_shell(mount: str) -> None:
    command = write_trial({"red": space(mount), "blue": space(mount)})

    assert command is not None
    assert "for m in ; do" in command.line
    (row,) = judge_trial("n1", {"red": space(mount)}, ShellOutput(0, "client mount\n", ""))
    assert row.verdict is UNKNOWN


def test_a_directory_of_its_own_is_not_tried_as_anothers() -> None:
    """The storage may tell tenants apart by the client: the same path is the node's own there."""
    seen = {
        "red": space("192.0.2.10:/scratch"),
        "blue": space("192.0.2.10:/scratch", "192.0.2.10:/scratch/a", "192.0.2.10:/scratch2"),
    }

    assert list_mounts(seen) == (["192.0.2.10:/scratch"], ["192.0.2.10:/scratch2"])
    assert write_trial({"red": space(), "blue": space(OTHER)}) is None
