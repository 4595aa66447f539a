"""Real ansible-inventory and ansible-playbook against the API: hosts, groups, requests."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from role_lab import ANSIBLE

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from served import Served, run


async def ansible(tmp_path: Path, tool: str, *words: str) -> tuple[int, str]:
    """Exit code and output of a real tool, in an environment of its own."""
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "LC_ALL": "C.UTF-8",
    }
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / tool), *words,
        env=env, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


def token_of(tmp_path: Path, served: Served, who: str) -> Path:
    path = tmp_path / f"{who}.token"
    path.touch(0o600)
    path.write_text(served.tokens[who])
    return path


def source_of(
    folder: Path, served: Served, token: Path, *, where: str = "kind=host", more: str = ""
) -> Path:
    source = folder / "fleet.provisioner.yml"
    source.write_text(
        f"plugin: provisioner.fleet.nodes\nurl: {served.client.make_url('')}\n"
        f"token_file: {token}\nwhere: '{where}'\n{more}"
    )
    return source


async def listed(
    tmp_path: Path, served: Served, token: Path, *, where: str = "kind=host", more: str = ""
) -> tuple[int, Any]:
    source = source_of(tmp_path, served, token, where=where, more=more)
    code, text = await ansible(tmp_path, "ansible-inventory", "-i", str(source), "--list")
    return code, json.loads(text) if code == 0 and text.startswith("{") else text


def test_the_inventory_has_the_nodes_their_groups_and_what_is_known_of_them(tmp_path: Path):
    async def scenario(served: Served) -> None:
        token = token_of(tmp_path, served, "viewer")
        more = "keyed_groups: [{key: provisioner_placement, prefix: placement}]\n"
        code, told = await listed(tmp_path, served, token, more=more)

        assert code == 0, told
        hosts = told["_meta"]["hostvars"]
        assert sorted(hosts) == [f"su0-n{n:02d}" for n in range(1, 7)]
        # Ansible marks it itself: what an API says is no template
        assert hosts["su0-n03"]["provisioner_tenant"] == {"__ansible_unsafe": "blue"}
        assert hosts["su0-n03"]["provisioner_location"]["index"] == 3
        assert told["state_quarantined"]["hosts"] == ["su0-n05"]
        assert told["tenant_red"]["hosts"] == ["su0-n01", "su0-n02"]
        assert told["placement_customer"]["hosts"] == ["su0-n01", "su0-n02", "su0-n03"]
        assert len(told["leaf_leaf_su0_r0"]["hosts"]) == 6

    run(scenario)


def test_a_tenants_token_shows_its_own_nodes_only(tmp_path: Path):
    async def scenario(served: Served) -> None:
        code, told = await listed(tmp_path, served, token_of(tmp_path, served, "blue"))

        assert code == 0, told
        assert sorted(told["_meta"]["hostvars"]) == ["su0-n03"]

    run(scenario)


def test_a_fleet_that_cannot_be_read_is_never_an_empty_one(tmp_path: Path):
    async def scenario(served: Served) -> None:
        words = []
        wrong = {"mode": "other users may read it", "token": "HTTP 401", "where": "HTTP 400"}
        for fault in wrong:
            (tmp_path / fault).mkdir()
            token = token_of(tmp_path / fault, served, "viewer")
            if fault == "mode":
                token.chmod(0o644)
            if fault == "token":
                token.write_text("prv_" + "x" * 43)
            where = "no=such and (" if fault == "where" else "kind=host"
            words += ["-i", str(source_of(tmp_path / fault, served, token, where=where))]
        _code, told = await ansible(tmp_path, "ansible-inventory", *words, "--list")

        assert [sentence for sentence in wrong.values() if sentence not in told] == []
        assert "su0" not in told

    run(scenario)


async def play(tmp_path: Path, served: Served, *tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of the module's tasks, one after the other in one run."""
    made = [
        {
            "provisioner.fleet.node_request": {
                "url": str(served.client.make_url("")),
                **{key: value for key, value in task.items() if key != "check_mode"},
            },
            "check_mode": task.get("check_mode", False),
            "ignore_errors": True,
        }
        for task in tasks
    ]
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": made}]))
    _code, text = await ansible(tmp_path, "ansible-playbook", "-v", str(book))
    read = json.JSONDecoder().raw_decode
    return [read(part)[0] for part in text.split("=> ")[1:]]


def test_a_fault_is_reported_once_and_not_at_all_in_check_mode(tmp_path: Path):
    async def scenario(served: Served) -> None:
        task = {
            "token_file": str(token_of(tmp_path, served, "operator")),
            "node": "su0-n04",
            "request": "repair",
            "reason": "NCCL stalls on rail 3",
        }
        only_checked = {**task, "check_mode": True, "reason": "only tried"}
        tried, first, again = await play(tmp_path, served, only_checked, task, task)
        cases = await served.store.cases.list()

        assert (tried["changed"], tried["operation"]) == (True, {})
        assert (first["changed"], first["operation"]["state"]) == (True, "done")
        assert (again["changed"], again["why"]) == (False, f"case {cases[0].id} is open")
        assert [c.reason for c in cases] == ["NCCL stalls on rail 3"]

    run(scenario)


def test_what_a_caller_may_not_ask_for_fails_with_the_apis_words(tmp_path: Path):
    async def scenario(served: Served) -> None:
        task = {"token_file": str(token_of(tmp_path, served, "viewer")), "request": "retry"}
        refused, needless = await play(
            tmp_path, served, {**task, "node": "su0-n05"}, {**task, "node": "su0-n01"}
        )

        assert "HTTP 403" in refused["msg"]
        assert (needless["changed"], needless["why"]) == (False, "it is released, not quarantined")

    run(scenario)
