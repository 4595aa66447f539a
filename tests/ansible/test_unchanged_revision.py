"""A revision that changes nothing is no failure, in whatever state NVUE leaves it.

NVUE does not apply a revision that equals what is applied, and says "config apply executed with no
config diff" (NVIDIA/infra-controller pull requests 5772 and 5790; nv-rms crates/nvue_client,
src/revision.rs: the words win over a failed state). Releases differ in the state that stays.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import pytest
from role_lab import ANSIBLE

from provisioner.integrations.cumulus.nvue_calls import Ask
from provisioner.integrations.cumulus.revisions import NvueLine, Revisions
from provisioner.ports.switch import SwitchRefused
from provisioner.settings import Settings

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import nvue, tools

NO_DIFF = "config apply executed with no config diff"
TREE = {"vrf": {"RED": {}}}


class Clock:
    """Time passes by sleeping alone."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Far:
    """The far end: a switch whose revision 21 ends in `state`; its tree is `tree`."""

    def __init__(self, state: str, issue: str, tree: dict[str, Any]) -> None:
        self.state, self.issue, self.tree = state, issue, tree

    def answer(self, method: str, path: str) -> Any:
        if method == "POST":
            return {"21": {"state": "pending"}}
        if "?rev=" in path:
            return self.tree if path.endswith("21") else TREE
        if path.endswith("/revision"):
            return {}
        issue = {"0": {"message": self.issue}} if self.issue else {}
        return {"state": self.state, "transition": {"issue": issue, "progress": ""}}

    async def ask(self, ask: Ask) -> Any:
        return self.answer(ask.method, ask.path)

    async def get(self, path: str) -> Any:
        return self.answer("GET", path)


async def applied_by_daemon(far: Far) -> str:
    line = cast(NvueLine, far)
    return await Revisions(line, Clock(), Settings()).apply(lambda _name: [])


def applied_by_role(far: Far, monkeypatch: pytest.MonkeyPatch) -> str:
    switch = nvue.Switch(
        {"url": "https://leaf", "username": "a", "password": "b", "ca_path": None, "limit_s": 0}
    )
    monkeypatch.setattr(nvue, "POLL_S", 0.0)
    switch.limit_s = 0.05
    switch.request = lambda method, path, body=None: far.answer(method, path)
    return str(switch.apply_revision({}))


CHANGED = {"vrf": {"BLUE": {}}}
FINE = [
    ("applied", "", CHANGED),
    ("applied_and_saved", "", CHANGED),
    ("failed", NO_DIFF, TREE),
    ("invalid", NO_DIFF, TREE),
    ("pending", NO_DIFF, TREE),
    ("pending", "Config apply executed with NO CONFIG DIFF.", TREE),
    ("something new", NO_DIFF, TREE),
    ("pending", "", TREE),
]
REFUSED = [
    ("pending", "", CHANGED),
    ("pending", "", {}),
    ("failed", "", TREE),
    ("ays_fail", "are you sure?", TREE),
    ("failed", f"{NO_DIFF}; frr did not start", TREE),
    ("ignore_fail", "a service did not start", CHANGED),
    ("invalid", "no such vrf", CHANGED),
]


@pytest.mark.parametrize(("state", "issue", "tree"), FINE)
def test_a_revision_that_changes_nothing_is_in_place(
    state: str, issue: str, tree: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Far(state, issue, tree)

    assert asyncio.run(applied_by_daemon(far)) == "21"
    assert applied_by_role(far, monkeypatch) == "21"


@pytest.mark.parametrize(("state", "issue", "tree"), REFUSED)
def test_a_revision_that_would_change_something_needs_its_end(
    state: str, issue: str, tree: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Far(state, issue, tree)

    with pytest.raises(SwitchRefused):
        asyncio.run(applied_by_daemon(far))
    with pytest.raises(tools.Refused):
        applied_by_role(far, monkeypatch)
