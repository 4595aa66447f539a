"""The set-up password of a simulated PowerEdge: a request, a job, and the boot that carries it out.

source: DMTF Bios 1.2 (ChangePassword: PasswordName, OldPassword, NewPassword); Dell's
BiosChangePasswordREDFISH: the password's name is SetupPassword, and a BIOS configuration job is
made afterwards; captured tree of a PowerEdge R750: its registry states that SHA256SetupPassword is
the SHA-256 of the password, and SHA256SetupPasswordSalt is appended before. That the old password
is compared by the BIOS at the boot, and not by the iDRAC, is our assumption: it is the harder case,
and so it is on Lenovo's TSM (its guide, "Change BIOS password").
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sim.hardware.bios import Bios
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done, make_error
from provisioner.sim.redfish.redfish_tree import Request, Resource, Tree
from provisioner.sim.redfish.tasks import Task, TaskTable, format_time

NAME = "SetupPassword"
LENGTH_MAX = 32  # source: captured tree of a PowerEdge R750, its registry


def mount_setup_password(tree: Tree, system: str, bios: Bios) -> Json:
    """Put the action into the tree; return the entry of Actions."""
    target = f"{system}/Bios/Actions/Bios.ChangePassword"

    def change(request: Request) -> Answer:
        body = request.json or {}
        given = [body.get(name) for name in ("PasswordName", "OldPassword", "NewPassword")]
        for name, value in zip(("PasswordName", "OldPassword", "NewPassword"), given, strict=True):
            if not isinstance(value, str):
                return make_error(400, "ActionParameterMissing", "ChangePassword", name)
        kind, old, new = map(str, given)
        if kind != NAME or not 0 < len(new) <= LENGTH_MAX:
            # source: dell/iDRAC-Redfish-Scripting 308, also for an empty new password
            return make_error(400, "PropertyValueFormatError", "Invalid BIOS Password.", NAME)
        if bios.job:
            return make_error(400, "ResourceInUse", resolution="A job is already committed.")
        bios.setup.waiting = (old, new)
        return answer_done()

    tree.add_action(target, change)
    return {"#Bios.ChangePassword": {"target": target}}


def mount_jobs(
    tree: Tree, manager: str, settings: str, bios: Bios, tasks: TaskTable, now: Callable[[], float]
) -> Json:
    """Put the list of jobs into the tree, which takes those of the BIOS; return the link to it.
    `settings`: the object whose values wait.

    source: captured tree of a PowerEdge R750, Links.Oem.Dell.Jobs of its manager
    """
    path = f"{manager}/Oem/Dell/Jobs"

    def begin(request: Request) -> Answer:
        if (request.json or {}).get("TargetSettingsURI") != settings:
            return make_error(400, "ActionParameterMissing", "Jobs", "TargetSettingsURI")
        if bios.job:
            return make_error(400, "ResourceInUse", resolution="A job is already committed.")
        if not bios.pending and bios.setup.waiting is None:
            return make_error(400, "GeneralError", resolution="No pending data is present.")
        bios.job = True
        task = tasks.add_task("Configure: BIOS.Setup.1-1", request.now)

        task.add_message("IDRAC.2.8.JCP001", "Task successfully scheduled.")
        task.state = "Starting"
        task.oem = {"Dell": {"JobState": "Scheduled", "Message": "Task successfully scheduled."}}

        def end(state: str) -> None:
            task.oem = {}
            task.end_with(state, now())

        bios.job_watchers.append(end)
        return Answer(200, {"Location": f"{path}/{task.id}"}, b"")

    def resolve(name: str) -> Resource | None:
        task = tasks.jobs.get(name)
        return None if task is None else Resource(lambda: _show_job(path, task))

    tree.add_collection(
        path, "DellJobCollection", lambda: list(tasks.jobs), resolve=resolve, post=begin
    )
    return {"Jobs": {"@odata.id": path}}


def _show_job(path: str, task: Task) -> Json:
    """Return a job (source: captured tree of a PowerEdge R750, Oem/Dell/Jobs)."""
    said = task.messages[-1] if task.messages else {}
    state = str(task.oem.get("Dell", {}).get("JobState", task.state))
    return {
        "@odata.id": f"{path}/{task.id}",
        "@odata.type": "#DellJob.v1_2_0.DellJob",
        "ActualRunningStartTime": None,
        "ActualRunningStopTime": None,
        "CompletionTime": None if task.ended is None else format_time(task.ended),
        "Description": "Job Instance",
        "EndTime": "TIME_NA",
        "Id": task.id,
        "JobState": state,
        "JobType": "BIOSConfiguration" if "BIOS.Setup" in task.name else "FirmwareUpdate",
        "Message": said.get("Message", ""),
        "MessageArgs": [],
        "MessageId": said.get("MessageId", ""),
        "Name": task.name,
        "PercentComplete": task.percent,
        "StartTime": format_time(task.started),
        "TargetSettingsURI": None,
    }
