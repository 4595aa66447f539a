"""The provider folder for NVIDIA's acceptance suite, run as the suite runs it: one process a step.

`FORMS` are the fields and types that the suite's checks read, from the "Step output" parts of the
docstrings in isvtest/src/isvtest/validations of NVIDIA/ai-cloud-validation, version 0.11.0. The
suite itself is not needed here; `make acceptance` runs it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from served import Served, run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "examples" / "acceptance"
TENANTS = ("list_tenants", "get_tenant")  # steps about a tenant instead of a node
FORMS: dict[str, Any] = {
    "verify_tags": {"instance_id": str, "tags": {"Name": str, "CreatedBy": str}, "tag_count": int},
    "query_governance_metrics": {
        "metrics": {
            name: {"nodes": int, "gpus": int}
            for name in ("delivered", "healthy", "reserved", "active")
        }
    },
    "query_resource_discovery": {
        "polls": int,
        "poll_interval_seconds": int,
        "unstable_identifiers": [str],
        "resources": [{"resource_id": str, "discovered": bool}],
    },
    "query_host_health": {
        "hosts": [{"host_id": str, "health_present": bool, "probe_ids": [str], "alerts": [dict]}]
    },
    "query_health_aggregation": {
        "aggregation_level": str,
        "groups": [
            {
                "group_id": str,
                "total": int,
                "healthy": int,
                "unhealthy": int,
                "status": str,
                "unhealthy_hosts": [str],
            }
        ],
    },
    "query_topology": {"hosts": [{"host_id": str, "failure_domain": str}]},
    "query_serial_numbers": {"machines": [{"machine_id": str, "components": dict}]},
    "query_oob_health": {
        "hosts": [
            {
                "host_id": str,
                "oob_health_present": bool,
                "bmc_probe_ids": [str],
                "failure_categories": {"device": {"observable": bool, "probe_ids": [str]}},
            }
        ]
    },
    "query_api": {
        "paths": int,
        "operations": {name: {"passed": bool} for name in ("document", "read", "change", "follow")},
    },
    "query_control_log": {"rows": int, "operations": {"logged": {"passed": bool}}},
    "query_versions": {"operations": {"firmware": {"passed": bool}}},
    "tenant_subnets": {"subnets": dict, "operations": {"own_subnets": {"passed": bool}}},
    "check_api": {"account_id": str, "tests": {"auth": {"passed": bool}}},
    "create_access_key": {"username": str, "access_key_id": str},
    "list_tenants": {"tenants": [dict], "count": int, "target_tenant": str, "found_target": bool},
    "get_tenant": {"tenant_name": str, "tenant_id": str, "description": str},
    "sa_credential_test": {"authenticated": bool, "credential_type": str, "identity": str},
    "return_node_maintenance": {
        "operation": {
            "requested": bool,
            "accepted": bool,
            "machine_id": str,
            "maintenance_mode": str,
        }
    },
    "query_maintenance_events": {
        "events_queryable": bool,
        "events": [{"machine_id": str, "status": str, "message": str}],
    },
}


def misfits(form: Any, value: Any, at: str = "") -> list[str]:
    """The places at which a value has not the form; a list needs an entry unless it is of text."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return [at]
        return [m for key, of in form.items() for m in misfits(of, value.get(key), f"{at}/{key}")]
    if isinstance(form, list):
        if not isinstance(value, list) or (not value and isinstance(form[0], dict)):
            return [at]
        return [m for row in value for m in misfits(form[0], row, f"{at}[]")]
    return [] if type(value) is form else [at]


async def answer(served: Served, token: str, folder: Path, step: str, *words: str) -> Any:
    file = folder / "token"
    file.write_text(token)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FOLDER / "ask.py"), step, *words),
        stdout=asyncio.subprocess.PIPE,
        env={
            "ACCEPTANCE_API": str(served.client.make_url("")).rstrip("/"),
            "ACCEPTANCE_TOKEN_FILE": str(file),
            "ACCEPTANCE_EVIDENCE": str(folder / "evidence"),
        },
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, step
    return json.loads(output)


def test_the_answers_have_the_form_that_the_checks_read(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        tags = {"tags": {"name:acceptance": True, "createdby:ada": True}}
        await served.ask("operator", "PATCH", "/nodes/su0-n01/tags", tags)
        for step, form in FORMS.items():
            about = ("--node", "red" if step in TENANTS else "su0-n01")
            printed = await answer(served, served.tokens["operator"], tmp_path, step, *about)
            assert printed["success"] is True, (step, printed)
            assert misfits({"platform": str, **form}, printed) == [], step
            recorded = (tmp_path / "evidence" / f"{step}.jsonl").read_text().splitlines()
            assert recorded
            assert all(json.loads(line)["status"] == 200 for line in recorded), step

    run(scenario)


def test_figures_are_those_of_the_store_and_of_the_caller(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        step = "query_governance_metrics"
        whole = await answer(served, served.tokens["operator"], tmp_path, step)
        red = await answer(served, served.tokens["red"], tmp_path, "query_topology")
        nodes = {name: counts["nodes"] for name, counts in whole["metrics"].items()}

        # n01, n02 are red's and n03 is blue's; n05 is quarantined, n01 and n03 have an alert
        assert nodes == {"delivered": 6, "healthy": 3, "reserved": 3, "active": 3}
        assert [h["host_id"] for h in red["hosts"]] == ["su0-n01", "su0-n02"]

    run(scenario)


def test_a_key_that_is_not_good_fails_every_step(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        for step in FORMS:
            printed = await answer(served, "prv_none", tmp_path, step, "--node", "su0-n01")
            assert printed["success"] is False, step
            assert "401" in printed["error"], step

    run(scenario)


def test_the_host_that_comes_back_with_other_firmware_has_no_case_that_waits_for_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The suite gives a whole rack back: a host of it went to repair, and was never validated."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import counterproofs

    tenants = {"n00": "red", "n01": "blue", "n02": "red", "n03": "acceptance", "n04": "blue"}
    hosts = [{"id": name, "tenant": tenant} for name, tenant in tenants.items()]
    opened = [{"id": f"{n}-c1", "node": n, "closed_at": None} for n in ("n01", "n03")]
    closed = {"id": "n02-c1", "node": "n02", "closed_at": 5.0}

    chosen = counterproofs.choose_returning(hosts, {"n00"}, [*opened, closed])
    all_given_back = counterproofs.choose_returning(hosts[:2], {"n00"}, opened)

    assert chosen == ("n02", [])
    assert all_given_back == ("n01", ["n01-c1"])
    with pytest.raises(counterproofs.RefusedError, match="left over"):
        counterproofs.choose_returning(hosts[:1], {"n00"}, [])


def test_each_step_of_the_configuration_is_answered_or_has_its_reason() -> None:
    words = "import ask, json; print(json.dumps([sorted(ask.STEPS), ask.unoffered.REASONS]))"
    listed = subprocess.run(
        [sys.executable, "-c", words], cwd=FOLDER, capture_output=True, check=True, timeout=30
    )
    steps, reasons = json.loads(listed.stdout)
    names = set()
    for file in FOLDER.glob("*.yaml"):
        (commands,) = yaml.safe_load(file.read_text(encoding="utf-8"))["commands"].values()
        names |= {row["command"].split()[-1] for row in commands["steps"]}

    assert names == {*steps, *reasons}
    assert not set(steps) & set(reasons)


def test_the_page_is_the_last_run_and_counts_no_pass_without_a_counter_proof() -> None:
    result = json.loads((FOLDER / "result.json").read_text(encoding="utf-8"))
    summary = result["summary"]
    proved = {i for i, proof in result["counterproofs"].items() if proof["holds"]}
    passed = {i for i, verdict in result["verdicts"].items() if verdict["state"] == "passed"}

    written = (ROOT / "docs" / "acceptance-suite.md").read_text(encoding="utf-8")
    told = f"of {summary['of']} ids {summary['passed']} passed, {len(summary['failed'])} failed"
    assert f"{told} and {len(summary['skipped'])} were skipped" in " ".join(written.split())
    assert result["date"] in written
    assert summary["passed"] == len(passed & proved)
    assert summary["of"] == summary["passed"] + len(summary["failed"]) + len(summary["skipped"])


def test_the_table_about_ironic_is_its_last_run_and_each_step_has_an_answer_or_a_reason() -> None:
    folder = FOLDER / "ironic"
    words = (
        "import ask, json, table; r = json.load(open('result.json')); "
        "print(json.dumps([table.draw_page(r), sorted(ask.STEPS)]))"
    )
    command = [sys.executable, "-c", words]
    drawn = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=30)
    rows, steps = json.loads(drawn.stdout)
    configuration = yaml.safe_load((folder / "bare_metal.yaml").read_text(encoding="utf-8"))
    verdicts = json.loads((folder / "result.json").read_text(encoding="utf-8"))["verdicts"]
    ours = json.loads((FOLDER / "result.json").read_text(encoding="utf-8"))["verdicts"]
    configured = {row["name"] for row in configuration["commands"]["bare_metal"]["steps"]}

    assert all(test_id in rows for test_id in verdicts)
    assert configured == set(steps)
    assert set(verdicts) >= {i for i, v in ours.items() if v["suite"] == "bare_metal"}
    assert [i for i, v in verdicts.items() if v["state"] == "skipped" and not v["message"]] == []
