"""The tasks that a service lists, those of them that run, and Dell's job of a task that is gone."""

from __future__ import annotations

from provisioner.adapters.redfish.messages import body_of
from provisioner.adapters.redfish.parsing import link, name_of
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.tasks import TaskView, is_running, of_task, read_view
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Unreachable


async def list_tasks(service: Service) -> tuple[str, ...]:
    """Return the path of every task; none if there is no task service.

    Raises `Unreachable` when the list does not come: silence does not mean that nothing runs.
    """
    walk = service.walk()
    tasks = link(await walk.read_root(), "Tasks")
    listed = link((await walk.read(tasks)).data, "Tasks") if tasks is not None else None
    paths = await walk.read_links(listed)
    silent = [g for g in walk.gaps if g.reason is not Reason.NOT_OFFERED]
    if silent:
        detail = f"{silent[0].source}: {silent[0].detail}"
        raise Unreachable(f"the task list could not be read: {detail}", maybe_executed=False)
    return tuple(paths)


async def list_running_tasks(service: Service) -> tuple[str, ...]:
    """Return the tasks that run. One that cannot be read counts as running, unless it is gone."""
    return tuple(
        [
            path
            for path in await list_tasks(service)
            if is_running(read_view(await service.call("GET", path), path))
        ]
    )


async def find_open_job(service: Service, subject: str) -> Blocker | None:
    """Return why a change of settings waits: a job that is open is never ended for it."""
    running = await list_running_tasks(service)
    if not running:
        return None
    return Blocker(
        reason=Reason.BUSY,
        subject=subject,
        detail=f"the BMC has an open job: {', '.join(running[:4])}",
        unblock="It is tried again when the job has ended; a stale one is deleted by a person.",
    )


async def read_job(service: Service, path: str) -> TaskView | None:
    """Return the job of the same name as a task that is gone; None if the service has none.

    After the iDRAC's own update the task is 404 while JobService still has its job
    (dell/iDRAC-Redfish-Scripting, DeviceFirmwareMultipartUploadREDFISH).
    """
    walk = service.walk()
    jobs = link(await walk.read_root(), "JobService")
    listed = link((await walk.read(jobs)).data, "Jobs") if jobs is not None else None
    if listed is None:
        return None
    reply = await service.call("GET", f"{listed.rstrip('/')}/{name_of(path)}")
    body = body_of(reply)
    return of_task(body) if reply.status == 200 and "JobState" in body else None
