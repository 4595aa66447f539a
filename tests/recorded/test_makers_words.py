"""A job's failure and an event's subject, in the words of each maker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.adapters.redfish.eventing.events import find_signals, read_document
from provisioner.adapters.redfish.tasks import read_view
from provisioner.ports import Reply

TASK = "/redfish/v1/TaskService/Tasks/7"


@pytest.mark.parametrize(
    ("job", "failed"),
    [
        ({"TaskState": "Completed", "TaskStatus": "Error"}, True),
        ({"TaskState": "Completed", "TaskStatus": "fatal"}, True),
        ({"JobState": "Completed", "JobStatus": "Failed"}, True),
        ({"JobState": "Completed", "JobStatus": "CompletedWithErrors"}, True),
        ({"TaskState": "Completed", "Oem": {"Supermicro": {"State": "Failed"}}}, True),
        ({"TaskState": "Completed", "Oem": {"Hpe": {"State": "Error"}}}, True),
        ({"TaskState": "Completed", "Oem": {"Lenovo": {"TaskState": "Failed"}}}, True),
        ({"TaskState": "Completed", "Messages": [{"MessageId": "A.1.0.B", "Severity": "Error"}]},
         True),
        ({"TaskState": "Completed", "Messages": {"MessageId": "Update.1.0.ApplyFailed"}}, True),
        ({"TaskState": "Completed", "Oem": {"Ami": {"State": "Enabled"}}}, False),
        ({"TaskState": "Completed", "TaskStatus": "Warning"}, False),
        ({"TaskState": "Completed", "TaskStatus": None, "Messages": None}, False),
        ({"TaskState": ["Completed"]}, None),  # no end
        ({"TaskState": "Running", "PercentComplete": 100, "EndTime": "2026-01-01T00:00Z"}, None),
    ],
)  # fmt: skip
def test_a_job_has_failed_in_each_makers_words(job: dict[str, Any], failed: bool | None) -> None:
    view = read_view(Reply(200, {}, json.dumps(job).encode()), TASK)

    assert view.done is (failed is not None)
    assert (view.failed is not None) is bool(failed)


@pytest.mark.parametrize(
    ("key", "is_quiet"),
    [
        ("EventRegistry.1.0.FQXSPSE4001I", True),
        ("FQXSPSE4059I", True),
        ("iLOEvents.2.0.FirmwareFlashed", True),
        ("Vendor.1.0.SSHKeyRejected", True),
        ("Vendor.1.0.CertExpired", True),
        ("Vendor.1.0.TlsHandshakeFailed", True),
        ("Vendor.1.0.PasswdChanged", True),
        ("Vendor.1.0.LDAPAuthFail", True),
        ("Vendor.1.0.FwUpdFail", True),
        ("Vendor.1.0.LicExpire", True),
        ("Vendor.1.0.MediaEjected", True),
        ("OpenBMC.0.1.ServiceStarted", True),
        ("FQXSPUN0019M", False),
        ("FQXSPSE0000F", False),
        ("iLOEvents.3.5.PowerSupplyFailed", False),
        ("OpenBMC.0.1.PCIeFatalECRCError", False),
        ("Vendor.1.0.AuthorFanFailed", False),
        ("Vendor.1.0.CertainFanFailed", False),
        ("IDRAC.2.8.SWU8561", False),  # of unknown meaning
    ],
)
def test_an_event_about_logins_or_updates_accuses_no_part(key: str, is_quiet: bool) -> None:
    record = {"MessageId": key, "Message": "x", "Severity": "Critical"}

    assert (find_signals(read_document({"Events": [record]}), "n1", "host", 0.0) == ()) is is_quiet
