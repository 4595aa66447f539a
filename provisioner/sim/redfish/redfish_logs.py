"""Logs of a simulated BMC: its event log, and dumps that it makes when it is asked to (DSP0268).

Entries are what the machine's `sel` holds; they outlive every reset, as on flash. A dump takes a
while as a task, then stands in the log with the address of its data.
"""

from __future__ import annotations

from provisioner.sim.redfish.redfish_answers import Answer, Json
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import Request, chosen
from provisioner.sim.redfish.tasks import stamp

DUMP_S = 40.0


def mount(service: RedfishService, manager: str) -> Json:
    """LogServices of a manager with `SEL` and `Dump`; the link to them."""
    path = f"{manager}/LogServices"
    service.tree.collection(path, "LogServiceCollection", lambda: ["SEL", "Dump"], partial=False)
    _event_log(service, f"{path}/SEL")
    _dump_log(service, f"{path}/Dump")
    return {"@odata.id": path}


def _event_log(service: RedfishService, path: str) -> None:
    machine, tree = service.machine, service.tree
    tree.fixed(path, {
        "@odata.type": "#LogService.v1_3_0.LogService", "Id": "SEL", "Name": "System Event Log",
        "LogEntryType": "SEL", "Entries": {"@odata.id": f"{path}/Entries"},
    }, partial=False)  # fmt: skip

    def entries() -> list[str]:
        for number, entry in enumerate(machine.sel, start=1):
            where = f"{path}/Entries/{number}"
            if where not in tree.resources:
                tree.fixed(where, {
                    "@odata.type": "#LogEntry.v1_13_0.LogEntry", "Id": str(number),
                    "Name": f"Log Entry {number}", "EntryType": "SEL", **entry,
                })  # fmt: skip
        return [str(number) for number in range(1, len(machine.sel) + 1)]

    tree.collection(f"{path}/Entries", "LogEntryCollection", entries, partial=False)


def _dump_log(service: RedfishService, path: str) -> None:
    tree, tasks, schedule = service.tree, service.tasks, service.machine.schedule
    made: list[str] = []
    action = f"{path}/Actions/LogService.CollectDiagnosticData"
    tree.fixed(path, {
        "@odata.type": "#LogService.v1_3_0.LogService", "Id": "Dump", "Name": "Dump LogService",
        "Entries": {"@odata.id": f"{path}/Entries"},
        "Actions": {"#LogService.CollectDiagnosticData": {
            "target": action,
            "DiagnosticDataType@Redfish.AllowableValues": ["Manager", "OEM"]}},
    }, partial=False)  # fmt: skip
    tree.collection(f"{path}/Entries", "LogEntryCollection", lambda: made, partial=False)

    def collect(request: Request) -> Answer:
        wanted = chosen(request, "CollectDiagnosticData", "DiagnosticDataType", ("Manager", "OEM"))
        if isinstance(wanted, Answer):
            return wanted
        task = tasks.new("Collect diagnostic data", request.now, action)

        def done(at: float) -> None:
            number = str(len(made) + 1)
            where = f"{path}/Entries/{number}"
            tree.fixed(where, {
                "@odata.type": "#LogEntry.v1_13_0.LogEntry", "Id": number, "EntryType": "Event",
                "Name": f"Dump {number}", "Created": stamp(at), "DiagnosticDataType": wanted,
                "AdditionalDataURI": f"{where}/attachment",
            })  # fmt: skip
            tree.fixed(f"{where}/attachment", {"journal": f"what {service.bmc.name} remembers"})
            made.append(number)
            task.end("Completed", at)

        schedule.at(request.now + DUMP_S, done)
        return tasks.accepted(task)

    tree.action(action, collect)
