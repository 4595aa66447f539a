"""Logs of a simulated BMC: its event log, and dumps that it creates on request (DSP0268).

Entries are those of the machine's `sel`; they survive every reset, as on flash. A dump runs as a
task for a while, then appears in the log with the address of its data. The baseboard's manager has
a journal instead, as in a DGX H100's recorded tree.
"""

from __future__ import annotations

from provisioner.sim.redfish.redfish_answers import Answer, Json
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import Request, Tree, get_allowed_value
from provisioner.sim.redfish.tasks import format_time

DUMP_S = 40.0
# as recorded from the HGX manager of a DGX H100, whose clock was years off
JOURNAL = "gpumgrd: GPUGetCurrentMemUtilization API failed with RC:263 DeviceId:{number}"
JOURNAL_AT = "2020-12-09T18:05:17+00:00"
JOURNAL_ID = 1607537117319077


def mount_logs(service: RedfishService, manager: str) -> Json:
    """Put a manager's LogServices with `SEL` and `Dump` into the tree; return the link."""
    path = f"{manager}/LogServices"
    service.tree.add_collection(
        path, "LogServiceCollection", lambda: ["SEL", "Dump"], partial=False
    )
    _event_log(service, f"{path}/SEL")
    _dump_log(service, f"{path}/Dump")
    return {"@odata.id": path}


def mount_journal(tree: Tree, manager: str, devices: int) -> Json:
    """Put a manager's LogServices with `Journal` into the tree; return the link."""
    path = f"{manager}/LogServices"
    journal = f"{path}/Journal"
    tree.add_collection(path, "LogServiceCollection", lambda: ["Journal"], partial=False)
    tree.add_fixed(
        journal,
        {
            "@odata.type": "#LogService.v1_1_0.LogService",
            "Id": "BMC Journal",
            "Name": "Open BMC Journal Log Service",
            "Description": "BMC Journal Log Service",
            "OverWritePolicy": "WrapsWhenFull",
            "Entries": {"@odata.id": f"{journal}/Entries"},
        },
        partial=False,
    )
    entries = {str(JOURNAL_ID + number): number for number in range(devices)}
    for name, number in entries.items():
        tree.add_fixed(
            f"{journal}/Entries/{name}",
            {
                "@odata.type": "#LogEntry.v1_9_0.LogEntry",
                "Id": name,
                "Name": "BMC Journal Entry",
                "Created": JOURNAL_AT,
                "EntryType": "Oem",
                "OemRecordFormat": "BMC Journal Entry",
                "Severity": "Warning",
                "Message": JOURNAL.format(number=number),
            },
        )
    tree.add_collection(
        f"{journal}/Entries", "LogEntryCollection", lambda: list(entries), partial=False
    )
    return {"@odata.id": path}


def _event_log(service: RedfishService, path: str) -> None:
    machine = service.machine
    tree = service.tree
    tree.add_fixed(
        path,
        {
            "@odata.type": "#LogService.v1_3_0.LogService",
            "Id": "SEL",
            "Name": "System Event Log",
            "LogEntryType": "SEL",
            "Entries": {"@odata.id": f"{path}/Entries"},
        },
        partial=False,
    )

    def list_entries() -> list[str]:
        for number, entry in enumerate(machine.sel, start=1):
            where = f"{path}/Entries/{number}"
            if where not in tree.resources:
                tree.add_fixed(
                    where,
                    {
                        "@odata.type": "#LogEntry.v1_13_0.LogEntry",
                        "Id": str(number),
                        "Name": f"Log Entry {number}",
                        "EntryType": "SEL",
                        **entry,
                    },
                )
        return [str(number) for number in range(1, len(machine.sel) + 1)]

    tree.add_collection(f"{path}/Entries", "LogEntryCollection", list_entries, partial=False)


def _dump_log(service: RedfishService, path: str) -> None:
    tree = service.tree
    tasks = service.tasks
    schedule = service.machine.schedule
    made: list[str] = []
    action = f"{path}/Actions/LogService.CollectDiagnosticData"
    tree.add_fixed(
        path,
        {
            "@odata.type": "#LogService.v1_3_0.LogService",
            "Id": "Dump",
            "Name": "Dump LogService",
            "Entries": {"@odata.id": f"{path}/Entries"},
            "Actions": {
                "#LogService.CollectDiagnosticData": {
                    "target": action,
                    "DiagnosticDataType@Redfish.AllowableValues": ["Manager", "OEM"],
                }
            },
        },
        partial=False,
    )
    tree.add_collection(f"{path}/Entries", "LogEntryCollection", lambda: made, partial=False)

    def collect(request: Request) -> Answer:
        kind = get_allowed_value(
            request, "CollectDiagnosticData", "DiagnosticDataType", ("Manager", "OEM")
        )
        if isinstance(kind, Answer):
            return kind
        task = tasks.add_task("Collect diagnostic data", request.now, action)

        def finish_dump(at: float) -> None:
            number = str(len(made) + 1)
            where = f"{path}/Entries/{number}"
            tree.add_fixed(
                where,
                {
                    "@odata.type": "#LogEntry.v1_13_0.LogEntry",
                    "Id": number,
                    "EntryType": "Event",
                    "Name": f"Dump {number}",
                    "Created": format_time(at),
                    "DiagnosticDataType": kind,
                    "AdditionalDataURI": f"{where}/attachment",
                },
            )
            tree.add_fixed(f"{where}/attachment", {"journal": f"what {service.bmc.name} remembers"})
            made.append(number)
            task.end_with("Completed", at)

        schedule.plan_act(request.now + DUMP_S, finish_dump)
        return tasks.answer_accepted(task)

    tree.add_action(action, collect)
