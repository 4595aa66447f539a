"""The task table of a simulated BMC, in memory only: its counter restarts with the BMC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from provisioner.integrations.sim.hardware.parts import Bmc, Firmware
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    make_answer,
    make_error,
    make_message,
)
from provisioner.integrations.sim.redfish.shape import Shape

JOBS = f"{ROOT}/JobService/Jobs"
TASKS_MAX = 100  # NVIDIA bmcweb, task.hpp
ENDED = frozenset({"Completed", "Exception", "Cancelled", "Killed"})


def format_time(now: float) -> str:
    """A Redfish date-time in UTC."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")


@dataclass
class Task:
    """A task for clients. It does not end before the items in `waiting_for` run."""

    id: str
    number: str  # its name in its messages
    name: str
    started: float
    target_uri: str = ""
    state: str = "Running"
    status: str = "OK"
    percent: int = 0
    messages: list[Json] = field(default_factory=list)
    ended: float | None = None
    monitor_read: bool = False
    waiting_for: list[Firmware] = field(default_factory=list)
    oem: Json = field(default_factory=dict)

    def add_message(self, registry_key: str, text: str, *args: str, **more: str) -> None:
        """Append a message."""
        self.messages.append(make_message(registry_key, text, args, **more))

    def set_progress(self, percent: int) -> None:
        """Set the timer's percentage, which does not follow the work."""
        self.percent = percent
        self.add_message(
            "TaskEvent.1.0.3.TaskProgressChanged",
            f"The task with Id '{self.number}' has changed to progress {percent} percent complete.",
            self.number,
            str(percent),
        )

    def end_with(self, state: str, now: float) -> None:
        """End with Completed, or Exception and the aborting message; the worst message counts."""
        self.state = state
        self.ended = now
        if state == "Completed":
            self.percent = 100
            self.add_message(
                "TaskEvent.1.0.3.TaskCompletedOK",
                f"The task with Id '{self.number}' has completed.",
                self.number,
            )
        else:
            self.add_message(
                "TaskEvent.1.0.3.TaskAborted",
                f"The task with Id '{self.number}' has been aborted.",
                self.number,
                severity="Critical",
            )
        worst = [m["MessageSeverity"] for m in self.messages]
        self.status = next((s for s in ("Critical", "Warning") if s in worst), "OK")


class TaskTable:
    """Tasks by id, oldest first."""

    def __init__(self, bmc: Bmc, shape: Shape) -> None:
        self.shape = shape
        self.tasks: dict[str, Task] = {}
        # source: dell/iDRAC-Redfish-Scripting, DeviceFirmwareMultipartUploadREDFISH: the job is
        # still there when the task of the iDRAC's own update is gone
        self.jobs: dict[str, Task] = {}
        self._next = 0 if shape.bmcweb else 1
        self._first = self._next
        bmc.on_reset.append(self._forget)

    def _forget(self, _: float) -> None:
        self.tasks.clear()
        if self.shape.handle != "dell":  # iDRAC keeps its job queue on flash, others restart at 0
            self._next = self._first

    def add_task(self, name: str, now: float, target_uri: str = "") -> Task:
        """Add a running task; the oldest ended one is removed (else the oldest running aborts)."""
        if len(self.tasks) >= TASKS_MAX:
            ended = [t for t in self.tasks.values() if t.state in ENDED]
            del self.tasks[(ended or list(self.tasks.values()))[0].id]
        number = self._next
        self._next += 1
        if self.shape.handle == "dell":
            number += int(now) * 10  # job ids grow with time
        task = Task(self.shape.task_id.format(n=number), str(number), name, now, target_uri)
        if self.shape.handle == "dell":
            task.state = "New"
        self.tasks[task.id] = task
        if self.shape.handle == "dell":
            self.jobs = dict([*self.jobs.items(), (task.id, task)][-TASKS_MAX:])
        task.add_message(
            "TaskEvent.1.0.3.TaskStarted", f"The task with Id '{number}' has started.", str(number)
        )
        return task

    def get_path(self, task: Task) -> str:
        """The task's path."""
        return self.shape.task_prefix + task.id

    def get_monitor_path(self, task: Task) -> str:
        """The path of its task monitor (DSP0266 clause 12.2)."""
        return self.shape.monitor.format(id=task.id)

    def show(self, task: Task) -> Json:
        """The Task resource."""
        if task.waiting_for and all(f.staged is None for f in task.waiting_for):
            task.waiting_for = []
            task.end_with("Completed", task.started)
        shown: Json = {
            "@odata.id": self.get_path(task),
            "@odata.type": "#Task.v1_4_3.Task",
            "Id": task.id,
            "Name": task.name,
            "TaskState": task.state,
            "TaskStatus": task.status,
            "StartTime": format_time(task.started),
            "PercentComplete": task.percent,
            "HidePayload": False,
            "Messages": list(task.messages),
        }
        if task.target_uri:
            shown["Payload"] = {
                "HttpOperation": "POST",
                "TargetUri": task.target_uri,
                "HttpHeaders": [],
                "JsonBody": "{}",
            }
        if task.ended is not None:
            shown["EndTime"] = format_time(task.ended)
        if not task.monitor_read:
            shown["TaskMonitor"] = self.get_monitor_path(task)
        if task.oem:
            shown["Oem"] = task.oem
        return shown

    def _monitored(self, task: Task) -> Answer:
        if task.monitor_read:
            return make_error(404, "ResourceMissingAtURI", self.get_monitor_path(task))
        shown = self.show(task)
        if task.state not in ENDED:
            return make_answer(
                202, shown, {"Location": self.get_monitor_path(task), "Retry-After": "30"}
            )
        if self.shape.monitor_vanishes:
            return make_error(404, "ResourceMissingAtURI", self.get_monitor_path(task))
        task.monitor_read = True
        return make_answer(204)

    def answer_accepted(self, task: Task) -> Answer:
        """202 with the short Task that bmcweb sends."""
        shown = {
            "@odata.id": self.get_path(task),
            "@odata.type": "#Task.v1_4_3.Task",
            "Id": task.id,
            "Name": task.name,
            "TaskState": task.state,
            "TaskStatus": task.status,
        }
        return make_answer(
            202, shown, {"Location": self.get_monitor_path(task), "Retry-After": "30"}
        )

    def mount(self, tree: Tree) -> None:
        """Put TaskService into the tree. `monitor_at` answers for the monitors."""
        path = f"{ROOT}/TaskService"
        tree.add_fixed(
            path,
            {
                "@odata.type": "#TaskService.v1_1_4.TaskService",
                "Id": "TaskService",
                "Name": "Task Service",
                "ServiceEnabled": True,
                "CompletedTaskOverWritePolicy": "Oldest",
                "LifeCycleEventOnTaskStateChange": True,
                "Status": {"State": "Enabled", "Health": "OK"},
                "Tasks": {"@odata.id": f"{path}/Tasks"},
            },
        )
        tree.add_collection(
            f"{path}/Tasks",
            "TaskCollection",
            lambda: [self.get_path(t) for t in self.tasks.values()],
            resolve=self._resolve,
        )
        if self.shape.handle == "dell":
            tree.add_collection(
                JOBS, "JobCollection", lambda: list(self.jobs), resolve=self._resolve_job
            )

    def _resolve_job(self, job_id: str) -> Resource | None:
        task = self.jobs.get(job_id)
        return None if task is None else Resource(lambda: self._show_job(task))

    def _show_job(self, task: Task) -> Json:
        """The Job resource (source: captured tree of a PowerEdge R750, JobService/Jobs)."""
        shown = self.show(task)
        return {
            "@odata.id": f"{JOBS}/{task.id}",
            "@odata.type": "#Job.v1_0_7.Job",
            "Id": task.id,
            "Name": task.name,
            "Description": "Recorded shape",
            "JobState": shown["TaskState"],
            "JobStatus": task.status,
            "PercentComplete": task.percent,
            "StartTime": shown["StartTime"],
            "EndTime": shown.get("EndTime"),
            "Messages": shown["Messages"],
        }

    def _resolve(self, task_id: str) -> Resource | None:
        task = self.tasks.get(task_id)
        if task is None:
            return None

        def delete(_: Request) -> Answer:
            if task.state not in ENDED:
                return make_error(409, "ResourceInUse")
            self.tasks.pop(task_id, None)
            return make_answer(204)

        return Resource(lambda: self.show(task), delete=delete)

    def is_hidden(self, task_id: str, now: float) -> bool:
        """Whether a new task is still invisible (iDRAC answers 404 for some seconds)."""
        task = self.tasks.get(task_id)
        return task is not None and now < task.started + self.shape.task_late_s

    def monitor_at(self, path: str) -> Answer | None:
        """The answer of a task monitor; None if the path is not a monitor."""
        prefix, _, suffix = self.shape.monitor.partition("{id}")
        if not (path.startswith(prefix) and path.endswith(suffix)):
            return None
        task = self.tasks.get(path[len(prefix) : len(path) - len(suffix)])
        return None if task is None else self._monitored(task)
