"""The drain hooks of docs/examples, run as they are: real events, stand-ins that print argv."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from served import Served
from served import run as serving
from webhook_rig import SECRET, Site, run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "schedulers"
# Both keep a node's state in a file; they know no more of their options than the hook uses.
SCONTROL = """#!{python}
import pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
state = here / "state"
if (here / "broken").exists():
    sys.exit("slurm_update error: Unable to contact slurm controller")
if words[0] == "show":
    now = state.read_text() if state.exists() else "State=IDLE"
    print("NodeName=" + words[2] + " Arch=x86_64 " + now)
else:
    with (here / "argv").open("a") as log:
        print(*words, sep="|", file=log)
    told = dict(word.split("=", 1) for word in words[1:])
    drained = told["State"] == "DRAIN"
    state.write_text("State=IDLE+DRAIN Reason=" + told["Reason"] if drained else "State=IDLE")
"""
KUBECTL = """#!{python}
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
file = here / "state"
node = {{"metadata": {{"annotations": {{}}}}, "spec": {{}}}}
node = json.loads(file.read_text()) if file.exists() else node
if words[0] == "get":
    print(json.dumps(node))
    sys.exit()
with (here / "argv").open("a") as log:
    print(*words, sep="|", file=log)
if words[0] == "annotate":
    key, equals, value = words[-1].partition("=")
    if equals:
        node["metadata"]["annotations"][key] = value
    else:
        node["metadata"]["annotations"].pop(key[:-1])
if words[0] in ("cordon", "uncordon"):
    node["spec"] = {{"unschedulable": words[0] == "cordon"}}
file.write_text(json.dumps(node))
"""


class Running:
    """A hook that listens, and the stand-in for its scheduler."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    @property
    def commands(self) -> list[str]:
        file = self.folder / "argv"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def hook(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    scheduler = request.param
    folder = tmp_path / "bin"
    folder.mkdir()
    name, text = {"slurm": ("scontrol", SCONTROL), "kubernetes": ("kubectl", KUBECTL)}[scheduler]
    (folder / name).write_text(text.format(python=sys.executable))
    (folder / name).chmod(0o755)
    (tmp_path / "secret").write_text(SECRET)
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / "hook.py", "serve", "--scheduler", scheduler,
         "--secret-file", tmp_path / "secret", "--port", "0"],
        env={"PATH": f"{folder}:{os.environ['PATH']}"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        found = re.search(r"port (\d+)", process.stderr.readline())
        assert found
        yield Running(folder, f"http://127.0.0.1:{found.group(1)}/")
    finally:
        process.kill()
        process.communicate()


def notice(kind: str, text: str = "its GPU 3 is broken") -> tuple[str, str, dict[str, Any]]:
    detail = {"id": f"n-{kind}", "tenant": "red", "case": "n1-0001", "kind": kind, "text": text}
    return ("notice", "n1", {**detail, "effective_at": 5000.0})


def told(tmp_path: Path, hook: Running, *rows: tuple[str, str, dict[str, Any]]) -> int:
    """Send rows of the journal to the hook by our own outbox; how many are dead."""

    async def scenario(site: Site) -> int:
        await site.happens(*rows)
        await site.empty()
        return (await site.standing()).dead

    return run(tmp_path, scenario, url=hook.url, tenant="red")


@pytest.mark.parametrize("hook", ["slurm"], indirect=True)
def test_slurm_drains_what_is_announced_and_resumes_what_is_back(tmp_path: Path, hook: Running):
    rows = [notice("maintenance", "firmware\n'x' State=DOWN"), notice("returned")]
    dead = told(tmp_path, hook, ("state", "n1", {}), *rows)

    reason = "provisioner: maintenance (n1-0001) firmware__x_ State_DOWN"
    assert dead == 0
    assert hook.commands == [
        "update|NodeName=n1|State=DRAIN|Reason=" + reason,
        "update|NodeName=n1|State=RESUME",
    ]


@pytest.mark.parametrize("hook", ["slurm"], indirect=True)
def test_what_somebody_else_drained_stays_theirs(tmp_path: Path, hook: Running):
    (hook.folder / "state").write_text("State=IDLE+DRAIN Reason=disk [root@2026-11-01]")
    dead = told(tmp_path, hook, notice("failure"), notice("returned"))

    assert (dead, hook.commands) == (0, [])


@pytest.mark.parametrize("hook", ["slurm"], indirect=True)
def test_a_scheduler_that_does_not_obey_is_told_again(tmp_path: Path, hook: Running):
    (hook.folder / "broken").touch()
    dead = told(tmp_path, hook, notice("failure"))

    assert (dead, hook.commands) == (1, [])


@pytest.mark.parametrize("hook", ["kubernetes"], indirect=True)
def test_kubernetes_cordons_and_drains_and_takes_back(tmp_path: Path, hook: Running):
    dead = told(tmp_path, hook, notice("failure"), notice("returned"))
    mark = "provisioner/drained=failure (n1-0001) its GPU 3 is broken"

    assert dead == 0
    assert hook.commands == [
        f"annotate|node|n1|--overwrite|{mark}",
        "cordon|n1",
        "drain|n1|--ignore-daemonsets|--delete-emptydir-data|--timeout=10s",
        "uncordon|n1",
        "annotate|node|n1|provisioner/drained-",
    ]


def posted(url: str, event: dict[str, Any], **changed: str) -> int:
    body = json.dumps(event).encode()
    headers = {"webhook-id": "1", "webhook-timestamp": str(int(time.time()))}
    headers["webhook-timestamp"] = changed.get("at", headers["webhook-timestamp"])
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"1.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    headers["webhook-signature"] = changed.get("signature", f"v1,{digest}")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("hook", ["slurm"], indirect=True)
def test_what_is_not_signed_or_old_or_no_name_changes_nothing(hook: Running):
    def event(node: str, sequence: int = 1) -> dict[str, Any]:
        data = {"detail": notice("failure")[2]}
        found = {"type": "provisioner.notice", "subject": node, "sequence": f"{sequence:020d}"}
        return {**found, "data": data}

    refused = [
        posted(hook.url, event("n1"), signature="v1,AAAA"),
        posted(hook.url, event("n1"), signature=""),
        posted(hook.url, event("n1"), at="1000"),
        posted(hook.url, event("n1,n[2-9]")),
        posted(hook.url, event("-n1")),
        posted(hook.url, event("")),
    ]
    assert (refused, hook.commands) == ([401, 401, 401, 400, 400, 400], [])
    assert [posted(hook.url, event("n1", 7)), posted(hook.url, event("n1", 3))] == [204, 204]
    assert len(hook.commands) == 1


def test_a_health_check_that_goes_on_failing_opens_one_case(tmp_path: Path):
    async def scenario(served: Served) -> None:
        token = tmp_path / "token"
        token.write_text(served.tokens["operator"])
        url = str(served.client.make_url(""))
        words = ["su0-n04", "NCCL stalls", "--url", url, "--token-file", str(token)]
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                sys.executable, EXAMPLES / "hook.py", "report", *words,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            await process.communicate()
        cases = await served.store.cases.list()

        assert [(c.node, c.reason) for c in cases] == [("su0-n04", "NCCL stalls")]

    serving(scenario)


def test_the_rights_in_a_cluster_are_those_that_a_drain_needs():
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes-rbac.yaml").read_text()))
    (role,) = [d for d in documents if d["kind"] == "ClusterRole"]
    verbs = {(r["resources"][0], verb) for r in role["rules"] for verb in r["verbs"]}

    assert {v for _, v in verbs} <= {"get", "list", "patch", "create"}
    assert ("pods/eviction", "create") in verbs
