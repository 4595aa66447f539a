"""DMTF's validators judge the simulated BMCs. What they still fault is explained in
docs/conformance.md, and nothing but that may fail."""

from __future__ import annotations

import html
import json
import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import redfish
from ironic_profile import profile
from simulated import Served, served

from provisioner.integrations.sim.redfish.bmc import read_shape

TOOLS = Path(sys.executable).parent
DAY_S = 86400


def run(tool: str, name: str, where: Path, site: Served, *args: str) -> str:
    """Run a tool on one BMC; what it printed."""
    bmc = site.bmc(name)
    host, _, port = site.url(name).removeprefix("https://").partition(":")
    trusted = where / "ca.pem"
    trusted.write_text(ssl.get_server_certificate((host, int(port))))
    done = subprocess.run(
        [TOOLS / tool, "-r", site.url(name), "-u", bmc.username, "-p", bmc.password, *args],
        cwd=where, env={"REQUESTS_CA_BUNDLE": str(trusted), "HOME": str(where)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stdout, done.stdout[-3000:]
    return done.stdout


def change_factory_password(site: Served, name: str, password: str) -> None:
    """As at a first login; long sessions, for simulated time runs fast."""
    bmc = site.bmc(name)
    client = redfish.redfish_client(site.url(name), bmc.username, bmc.password)
    client.login(auth="basic")
    accounts = client.get("/redfish/v1/AccountService/Accounts").dict.get("Members", [])
    where = accounts[0]["@odata.id"] if accounts else "/redfish/v1/AccountService/Accounts/root"
    assert client.patch(where, body={"Password": password}).status == 200
    bmc.password = password
    keep_sessions(site, name)


def keep_sessions(site: Served, name: str) -> None:
    """Let sessions outlive the tool's pauses."""
    bmc = site.bmc(name)
    client = redfish.redfish_client(site.url(name), bmc.username, bmc.password)
    client.login(auth="basic")
    answer = client.patch("/redfish/v1/SessionService", body={"SessionTimeout": DAY_S})
    assert answer.status == 200


def leave_null_uuid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1.3 of the validator ends with a traceback where a manager's UUID is null, as the
    recorded card has it and the schema allows."""
    shape = read_shape("nvidia_openbmc")
    assert shape is not None
    monkeypatch.setattr(shape, "_added", {})
    with_null = [add for _, add in shape.overlays if add.get("ServiceEntryPointUUID", "") is None]
    assert with_null
    for add in with_null:
        monkeypatch.delitem(add, "ServiceEntryPointUUID")


def faulted(where: Path) -> set[str]:
    """The assertions that the protocol validator's report marks as failed."""
    report = next(where.glob("*.tsv")).read_text()
    rows = [line.split("\t") for line in report.splitlines()]
    return {" ".join((r[0], r[1])) for r in rows if len(r) > 4 and r[4] in ("FAIL", "WARN")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param("su0-n00/host", marks=pytest.mark.long), "su0-n00/DPU_0"]
)
def test_the_protocol_validator_faults_only_what_is_explained(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_null_uuid_out(monkeypatch)
    with served(speed=2) as site:
        if name.endswith("DPU_0"):
            change_factory_password(site, name, "Changed-at-once-1")
        keep_sessions(site, name)
        run("rf_protocol_validator", name, tmp_path, site, "--ca-bundle", str(tmp_path / "ca.pem"),
            "--avoid-http-redirect", "--report-type", "tsv", "--report-dir", ".")  # fmt: skip

    assert faulted(tmp_path) == {"PROTO_HTTP_UNSUPPORTED_METHODS FAKEMETHODFORTEST"}


def test_the_interop_validator_finds_a_host_fit_for_ironic(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(json.dumps(profile()))
    with served() as site:
        told = run("rf_interop_validator", "su0-n00/host", tmp_path, site, "--authtype", "Session",
                   "profile.json")  # fmt: skip
    judged = {part.partition("...")[0]: part for part in told.split("Validating ")[1:]}
    counts = {
        uri: re.search(r"Pass: (\d+), Warn: \d+, Fail: (\d+)", p) for uri, p in judged.items()
    }
    failed = {uri for uri, count in counts.items() if count and int(count.group(2))}
    passed = {uri: int(count.group(1)) for uri, count in counts.items() if count}

    # the GPU tray is a ComputerSystem without boot and reset, its GPUs Processors without threads
    assert {judged[uri] for uri in failed if "HGX_Baseboard_0" not in uri} == set()
    assert passed["/redfish/v1/Systems/1"] > 15


@pytest.mark.long
@pytest.mark.slow
def test_the_use_case_checkers_fault_only_power_on_of_a_running_host(tmp_path: Path) -> None:
    with served(speed=20) as site:
        keep_sessions(site, "su0-n00/host")
        run("rf_use_case_checkers", "su0-n00/host", tmp_path, site, "--report-dir", ".")
    page = next(tmp_path.glob("**/*.html")).read_text()
    words = re.sub(r"(\|\s*)+", "|", re.sub(r"<[^>]+>", "|", html.unescape(page)))

    assert set(re.findall(r"([^|]+)\|FAIL\|", words)) == {
        f"Performing the reset action with the reset type '{kind}' for system '1'"
        for kind in ("On", "ForceOn")
    }
