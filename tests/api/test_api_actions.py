"""One action, opened: what was sent, what came back, what each task said, also while it runs."""

from __future__ import annotations

import json
from pathlib import Path

from served import NOW, Served, run

from provisioner.api.routes.node_actions import find_bmc, read_play
from provisioner.cli.client.output import describe_detail
from provisioner.integrations.playbooks.folder import EVENTS, RunFolder
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_report import join_alike
from provisioner.ports.inband import Run


def test_an_action_is_opened_while_it_runs_and_after_it_failed() -> None:
    async def scenario(served: Served) -> None:
        book = served.store.operations
        opened = await book.open("su0-n05", "journey", NOW)
        assert opened is not None
        operation = await book.take(opened.id)
        before = {"step": {"bmcs": ["host"], "component": "host.bios"}, "password": "x-secret-1"}
        operation, entry = await book.intend(operation, "update host.bios host 1 2", before, NOW)
        _, listed = await served.ask("viewer", "GET", "/nodes/su0-n05/actions")
        name = listed["items"][0]["id"]

        status, live = await served.ask("viewer", "GET", f"/nodes/su0-n05/actions/{name}")
        await book.settle(
            operation, entry, ActionStatus.FAILED, task="/redfish/v1/Tasks/7",
            outcome="Task 7: image rejected", now=NOW + 5,
        )  # fmt: skip
        _, ended = await served.ask("viewer", "GET", f"/nodes/su0-n05/actions/{name}")
        _, node = await served.ask("viewer", "GET", "/nodes/su0-n05")
        foreign, _ = await served.ask("viewer", "GET", f"/nodes/su0-n01/actions/{name}")
        of_red, _ = await served.ask("red", "GET", f"/nodes/su0-n05/actions/{name}")

        assert (status, live["live"], ended["live"]) == (200, True, False)
        assert any("host.bios" in line for line in live["sent"])
        assert "x-secret-1" not in str(live)
        assert ended["action"]["outcome"] == "Task 7: image rejected"
        assert (ended["task"]["bmc"], ended["task"]["gap"]) == ("host", "ask with bmc=true")
        assert node["failed_action"] == name
        assert (foreign, of_red) == (404, 403)

    run(scenario)


def test_a_play_is_read_from_its_folder_while_it_runs(tmp_path: Path) -> None:
    volatile = tmp_path / "memory"
    volatile.mkdir()
    folder = RunFolder.create(tmp_path / "run", volatile, "", {})
    lines = [
        {"event": "task", "host": "n1", "task": "install"},
        {"event": "done", "host": "n1", "status": "ok", "message": "done with s3cret-word"},
        {"event": "task", "host": "n1", "task": "verify"},
    ]
    (volatile / "secrets.json").write_text(json.dumps(["s3cret-word"]))
    (volatile / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = Run("r1", "host_software.yml", {"n1": "d"}, str(folder.path), NOW, 60.0)

    told = read_play(row, "n1")
    gone = read_play(Run("r2", "p", {"n1": "d"}, str(tmp_path / "no"), NOW, 60.0), "n1")

    assert [(t.task, t.status, t.message) for t in told.tasks] == [
        ("install", "ok", "done with (secret)"),
        ("verify", "running", ""),
    ]
    assert (gone.tasks, gone.gap) == ((), "its folder is gone: it was pruned")


def test_a_bmc_is_the_one_of_the_step_and_never_one_that_the_node_has_not() -> None:
    assert find_bmc({"step": {"bmcs": ["DPU_1"]}}, ["host", "DPU_1"]) == "DPU_1"
    assert find_bmc({"step": {"bmcs": ["other"]}}, ["host", "DPU_1"]) == ""
    assert find_bmc({}, ["host"]) == "host"


def test_a_refusal_is_told_once_with_its_nodes() -> None:
    def refusal(subject: str, detail: str) -> Blocker:
        return Blocker(reason=Reason.NO_PATH, subject=subject, detail=detail, unblock="Add it.")

    same = [(f"n{n}", refusal("host.bios", "it cannot go back")) for n in range(7)]

    joined = join_alike([*same, ("n9", refusal("n9", "it is down"))])

    assert [(b.subject, b.detail) for b in joined] == [
        ("n0, n1, n2, n3, n4 and 2 more", "host.bios: it cannot go back"),
        ("n9", "it is down"),
    ]


def test_an_event_is_told_as_a_sentence() -> None:
    blocker = {"reason": "power", "subject": "n1", "detail": "it is off", "unblock": "On."}
    detail = {"from": "intake", "to": "quarantined", "why": "no power", "blockers": [blocker]}

    assert describe_detail(detail) == (
        "intake → quarantined; no power; blockers power: n1: it is off"
    )
    assert describe_detail({"release": "r1", "nodes": ["a", "b"], "note": ""}) == (
        "release r1; nodes a, b"
    )
