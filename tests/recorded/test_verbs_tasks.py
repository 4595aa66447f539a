"""What a task's answer is taken for."""

from __future__ import annotations

import json

import pytest
from scripted_bmc import TASK, V1, bmc_of, reply, run, said

from provisioner.adapters.redfish.client import TaskRef, TaskView
from provisioner.adapters.redfish.tasks import of_task
from provisioner.model.inventory import Activation
from provisioner.ports import Reply, Unreachable


def task(state: str, *messages: tuple[str, ...], status: str = "OK", **more: object) -> Reply:
    listed = [
        {
            "MessageId": m[0],
            "Message": m[0],
            "MessageArgs": list(m[1:2]),
            "Severity": "".join(m[2:]),
        }
        for m in messages
    ]
    return reply(200, {"TaskState": state, "TaskStatus": status, "Messages": listed, **more})


ENDS: dict[str, tuple[Reply, bool, bool]] = {  # answer, done, failed
    "runs": (task("Running", PercentComplete=20), False, False),
    "is new right after it was sent (Dell)": (task("New"), False, False),
    "completes": (task("Completed"), True, False),
    "completes with noise as a warning (DGX)": (
        task("Completed", ("UpdateManager.1.0.MessageNil", "ResourceErrorsDetected", "Warning")),
        True,
        False,
    ),
    "completes although no debug token was there": (
        task(
            "Completed",
            ("NvidiaUpdate.1.0.0.DebugTokenEraseFailed", "x", "Critical"),
            status="Critical",
        ),
        True,
        False,
    ),
    "ends as an exception whose status is OK (DGX)": (task("Exception"), True, True),
    "completes, critical (JCP052)": (task("Completed", status="Critical"), True, True),
    "completes, but nothing matched": (
        task("Completed", ("ResourceEvent.1.0.ResourceErrorsDetected", "No Matching Devices")),
        True,
        True,
    ),
    "completes, but a component failed": (
        task("Completed", ("Update.1.0.ApplyFailed", "HGX_FW_GPU_SXM_1")),
        True,
        True,
    ),
    "waits for the host's reset (Dell)": (
        task("UserIntervention", PercentComplete=100),
        True,
        False,
    ),
    **{
        f"is a job that {name}": (reply(200, body), done, failed)
        for name, body, done, failed in (
            ("completed", {"JobState": "Completed", "JobStatus": "OK"}, True, False),
            ("completed, critical", {"JobState": "Completed", "JobStatus": "Critical"}, True, True),
            ("was cancelled", {"JobState": "Cancelled"}, True, True),
            ("continues", {"JobState": "Continue"}, False, False),
            ("is in a state that nobody knows", {"JobState": "Frobnicating"}, False, False),
            (
                "ended in a state that nobody knows, critical",
                {"JobState": "Off", "JobStatus": "Critical", "EndTime": "2026-01-01T00:00:00Z"},
                True,
                True,
            ),
            (
                "is critical in a state that nobody knows, and has no end",
                {"JobState": "Off", "JobStatus": "Critical", "EndTime": "TIME_NA"},
                False,
                False,
            ),
        )
    },
    **{
        f"is a Dell's job that is {state}": (reply(200, {"JobState": state}), done, failed)
        for state, done, failed in (
            ("Failed", True, True),
            ("CompletedWithErrors", True, True),
            ("Completed with Errors", True, True),
            ("RebootFailed", True, True),
            ("RebootCompleted", True, False),
            *(
                (state, False, False)
                for state in (
                    "Downloading",
                    "Downloaded",
                    "Scheduling",
                    "Scheduled",
                    "ReadyForExecution",
                    "Waiting",
                    "Paused",
                    "RebootPending",
                    "PendingActivation",
                    "Unknown",
                )
            ),
        )
    },
    **{
        f"is {outer} while Dell's job is {inner}": (
            task(outer, Oem={"Dell": {"JobState": inner}}),
            done,
            failed,
        )
        for outer, inner, done, failed in (
            ("Completed", "Completed", True, False),
            ("Completed", "Failed", True, True),
            ("Running", "Failed", True, True),
            ("Completed", "Downloading", False, False),
            ("Completed", "Scheduled", False, False),
            ("Completed", "Frobnicating", False, False),
            ("UserIntervention", "RebootFailed", True, True),
            ("UserIntervention", "RebootPending", True, False),
        )
    },
    "still runs, as its monitor says": (reply(202), False, False),
    "has ended, as its monitor says": (reply(204), True, False),
    "cannot be read now": (reply(503), False, False),
    "is nonsense": (reply(200, ["Completed"]), False, False),
}


@pytest.mark.parametrize(("answer", "done", "failed"), ENDS.values(), ids=ENDS)
def test_a_task_that(answer: Reply, *, done: bool, failed: bool) -> None:
    _, client = bmc_of("tiny_dgx", {f"GET {TASK}": answer})

    view = run(client.read_task(TaskRef(path=TASK)))

    assert (view.done, view.failed is not None, view.vanished) == (done, failed, False)


@pytest.mark.parametrize(
    ("answer", "done", "failed"),
    [
        (reply(204), True, False),
        (reply(200, {"@odata.id": f"{V1}/UpdateService"}), True, False),
        (reply(200, said("Base.1.0.Success")), True, False),
        (reply(200, said("Update.1.0.ApplyFailed")), True, True),
        (reply(400, said("Update.1.0.VerificationFailed")), True, True),
        (reply(409, said("Base.1.0.ResourceInUse")), True, True),
        (reply(401), False, False),
        (reply(429), False, False),
        (reply(503), False, False),
    ],
)
def test_a_monitor_ends_with_the_answer_of_its_operation(
    answer: Reply, *, done: bool, failed: bool
) -> None:
    monitor = f"{V1}/TaskService/TaskMonitors/3"
    _, client = bmc_of("tiny_dgx", {f"GET {monitor}": answer})

    view = run(client.read_task(TaskRef(path=monitor)))

    assert (view.done, view.failed is not None) == (done, failed)


@pytest.mark.parametrize(
    "said_by_the_job",
    [
        {"Messages": [{"MessageId": "IDRAC.2.8.RED014", "Message": "Not verified."}]},
        {"Message": "Not verified.", "MessageId": "RED014"},
        {"Oem": {"Dell": {"JobState": "Failed", "Message": "Not verified."}}},
    ],
)
def test_a_failed_job_says_why(said_by_the_job: dict[str, object]) -> None:
    failed = of_task({"JobState": "Failed", **said_by_the_job}).failed

    assert failed == "the task ended as Failed: Not verified."


def test_a_job_of_another_state_runs_for_those_who_wait_for_it() -> None:
    tasks = f"{V1}/TaskService/Tasks"
    states = ("Downloading", "Frobnicating", "Completed", "Failed", "Scheduled")
    tree = {
        "": {"Tasks": {"@odata.id": f"{V1}/TaskService"}},
        "TaskService": {"Tasks": {"@odata.id": tasks}},
        "TaskService__Tasks": {"Members": [{"@odata.id": f"{tasks}/{s}"} for s in states]},
        **{f"TaskService__Tasks__{state}": {"JobState": state} for state in states},
    }
    _, client = bmc_of("tiny_dgx", {}, **tree)

    assert run(client.read_tasks()) == (f"{tasks}/Downloading", f"{tasks}/Frobnicating")


def test_a_task_that_is_gone_is_vanished_and_neither_done_nor_failed() -> None:
    _, client = bmc_of("tiny_dgx", {f"GET {TASK}": reply(404)})

    assert run(client.read_task(TaskRef(path=TASK))) == TaskView(state="vanished", vanished=True)


def test_a_task_names_the_activation_that_its_components_wait_for() -> None:
    messages = [
        {
            "MessageId": "Update.1.0.AwaitToActivate",
            "Resolution": "DC power cycle or AC power cycle",
        },
        {"MessageId": "Update.1.0.AwaitToActivate", "Resolution": "AC power cycle"},
    ]
    _, client = bmc_of(
        "tiny_dgx", {f"GET {TASK}": reply(200, {"TaskState": "Completed", "Messages": messages})}
    )

    assert run(client.read_task(TaskRef(path=TASK))).awaits is Activation.AC_CYCLE


def test_running_tasks_are_listed_dangling_ones_are_not_and_silence_is_no_empty_list() -> None:
    tasks = f"{V1}/TaskService/Tasks"
    members = {"Members": [{"@odata.id": f"{tasks}/{n}"} for n in range(4)]}
    tree = {
        "TaskService": {"Tasks": {"@odata.id": tasks}},
        "TaskService__Tasks": members,
        "TaskService__Tasks__1": {"TaskState": "Running"},
        "TaskService__Tasks__2": {"TaskState": "Completed"},
        "": {"Tasks": {"@odata.id": f"{V1}/TaskService"}},
    }
    _, client = bmc_of("tiny_dgx", {f"GET {tasks}/3": reply(500)}, **tree)
    _, silent = bmc_of("tiny_dgx", {f"GET {tasks}": reply(503)}, **tree)

    assert run(client.read_tasks()) == (f"{tasks}/1", f"{tasks}/3")
    with pytest.raises(Unreachable):
        run(silent.read_tasks())


@pytest.mark.parametrize(
    ("keys", "skipped"),
    [
        (("Update.1.0.UpdateSuccessful",), False),
        (("NvidiaUpdate.1.0.ComponentUpdateSkipped",), True),
        # a package whose parts were partly there already did write something
        (("NvidiaUpdate.1.0.ComponentUpdateSkipped", "Update.1.0.TransferringToComponent"), False),
    ],
)
def test_a_task_that_wrote_nothing_since_it_was_there_says_so(
    keys: tuple[str, ...], skipped: bool
) -> None:
    found = of_task(json.loads(task("Completed", *((k, "HGX_FW_GPU_SXM_1") for k in keys)).body))

    assert (found.done, found.failed) == (True, None)
    assert bool(found.skipped) is skipped
