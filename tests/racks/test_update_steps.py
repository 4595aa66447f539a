"""What a rack's update does next, decided without a rack."""

from __future__ import annotations

from dataclasses import replace

from provisioner.integrations.racks.update_log import BEGAN, ActLog, Line
from provisioner.integrations.racks.update_packages import Package
from provisioner.integrations.racks.update_steps import (
    Do,
    Nvos,
    SwitchView,
    TaskSeen,
    decide_reboot,
    judge_push,
)
from provisioner.integrations.racks.update_trays import mark_tasks


def test_a_full_list_of_tasks_that_drops_its_oldest_shows_that_a_push_arrived() -> None:
    before = [f"/redfish/v1/TaskService/Tasks/{n}" for n in range(100)]
    after = [*before[1:], "/redfish/v1/TaskService/Tasks/100"]
    log = ActLog((Line("a", BEGAN, "push", 0.0, str(mark_tasks(before))),))
    arrived = judge_push(TaskSeen(), mark_tasks(after), (), log, 1000.0)
    lost = judge_push(TaskSeen(), mark_tasks(before[::-1]), (), log, 1000.0)
    assert arrived is None
    assert lost is not None
    assert lost.do is Do.SEND


def test_a_switch_is_not_restarted_under_a_task_of_its_bmc() -> None:
    busy = SwitchView(Nvos.OK, bmc=True, running=("/redfish/v1/TaskService/Tasks/7",))
    package = Package.model_validate(
        {"files": [{"url": "https://f/x"}], "versions": {"nvos": ["1"]}}
    )
    assert decide_reboot([package], busy, ActLog(()), 0.0).do is Do.WAIT
    idle = replace(busy, running=())
    assert decide_reboot([package], idle, ActLog(()), 0.0).do is Do.SEND
