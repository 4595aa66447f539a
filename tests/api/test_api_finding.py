"""Finding nodes, what differs, and what comes next: the same words on every page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from served import NOW, RELEASE, Served, run

from provisioner.api.changes import read_before
from provisioner.api.routes import events, finding
from provisioner.cli.client.output import mark_mistake
from provisioner.model.access import ChangeKind, ChangeRequest
from provisioner.model.case import Case, Origin, PartClass, Service, Stage, Suspect
from provisioner.model.inventory import Component, Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import Difference, DifferenceKind
from provisioner.model.times.instant import format_instant
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.rows import evidence_rows

CONSOLE = Path(finding.__file__).parents[1] / "console"


def seen(name: str, bios: str, serial: str = "S-1") -> Inventory:
    part = Component(
        kind="bluefield.nic", slot="DPU_1", version="1.0", serial=serial, source="/redfish"
    )
    bios_part = Component(kind="host.bios", slot="host", version=bios, source="/redfish")
    return Inventory(node=name, vendor="generic", components=(part, bios_part))


async def put(served: Served, inventory: Inventory) -> None:
    await served.store.write(partial(evidence_rows.put_inventory, inventory=inventory, now=NOW))


async def select(served: Served, who: str, where: str) -> Any:
    answer = await served.client.get(
        "/v1/selection", params={"where": where}, headers=served.key(who)
    )
    return answer.status, await answer.json(content_type=None)


def test_versions_serials_and_cases_select_in_every_place_alike() -> None:
    async def scenario(served: Served) -> None:
        await put(served, seen("su0-n01", "9.1", "MT-77"))
        wheres = {"bios=9.*": ["su0-n01"], "serial=mt-7?": ["su0-n01"], "nic=1.0": ["su0-n01"]}
        for where, names in wheres.items():
            status, found = await select(served, "viewer", where)
            _, listed = await served.ask("viewer", "GET", f"/nodes?where={where}")
            _, drift = await served.ask("viewer", "GET", f"/drift?select={where}")

            assert (status, found["nodes"], found["total"]) == (200, names, 1), where
            assert [n["id"] for n in listed["items"]] == names
            assert {line["node"] for line in drift["items"]} <= set(names)

    run(scenario)


def test_a_mistake_names_its_place_and_a_tenant_is_told_of_its_own_fields_only() -> None:
    async def scenario(served: Served) -> None:
        status, refused = await select(served, "viewer", "rack=a and drivr=1")
        long, too_long = await select(served, "viewer", "a" * 5_000)
        _, fields = await served.ask("red", "GET", "/selection/fields")
        of_red, told = await select(served, "red", "serial=x")
        _, own = await select(served, "red", "kind=host")

        assert (status, refused["mistake"]["position"], refused["mistake"]["length"]) == (
            400,
            12,
            5,
        )
        assert "driver" in refused["mistake"]["expected"]
        assert (long, too_long["mistake"]["position"]) == (400, 2001)
        assert of_red == 400
        assert "serial" not in told["mistake"]["expected"]
        assert not {"serial", "case", "reason"} & {f["name"] for f in fields["items"]}
        assert own["nodes"] == ["su0-n01", "su0-n02"]

    run(scenario)


def test_drift_is_a_table_of_components() -> None:
    async def scenario(served: Served) -> None:
        pins = served.parts.matrix.releases["spectrum-x-1.3.0"].profiles["hgx-h100-bf3"].pins
        wanted = pins["bluefield.nic"]
        for name in ("su0-n01", "su0-n02"):
            await put(served, seen(name, "9.1"))

        _, told = await served.ask("viewer", "GET", "/drift?named=1")
        rows = {(r["kind"], r["running"]): r for r in told["table"]}

        assert wanted.known
        assert (rows["bluefield.nic", "1.0"]["nodes"], told["total"] >= 2) == (2, True)
        assert rows["bluefield.nic", "1.0"]["wanted"] == wanted.version
        assert rows["bluefield.nic", "1.0"]["names"] == ["su0-n01", "su0-n02"]
        assert len(told["items"]) == 1

    run(scenario)


def test_versions_of_an_older_daemons_inventory_are_made_up_for_at_the_next_look() -> None:
    async def scenario(served: Served) -> None:
        await put(served, seen("su0-n01", "9.1"))
        older = seen("su0-n01", "9.2")
        await served.store.write(
            lambda c: c.exec_driver_sql(
                "INSERT INTO inventories (node, digest, body, seen_at) VALUES (?, ?, ?, 1)",
                ("su0-n01", older.digest(), older.model_dump_json()),
            )
        )
        _, before = await select(served, "viewer", "bios=9.2")
        await put(served, older)
        _, after = await select(served, "viewer", "bios=9.2")
        _, gone = await select(served, "viewer", "bios=9.1")

        assert (before["total"], after["total"], gone["total"]) == (0, 1, 0)

    run(scenario)


OPEN = Blocker(
    reason=Reason.CHECK_FAILED,
    subject="GPU_5",
    detail="it fell off the bus",
    unblock="Open a repair case: the part is a candidate for return.",
)


def case_of(node: str, **more: Any) -> Case:
    suspect = Suspect(part="GPU_5", kind=PartClass.GPU, confidence=0.9, rule="r", why="Xid 79")
    given: dict[str, Any] = {
        "id": f"{node}-c0001",
        "node": node,
        "origin": Origin.OPERATOR,
        "reason": "it hangs",
        "service": Service.DRAIN,
        "stage": Stage.DIAGNOSIS,
        "suspects": (suspect,),
        "opened_at": NOW - 60,
    }
    return Case(**{**given, **more})


def test_with_a_case_open_every_page_has_its_cause_and_its_next_step() -> None:
    async def scenario(served: Served) -> None:
        stored = await served.store.nodes.get("su0-n05")
        assert stored is not None
        await served.store.nodes.save(stored.model_copy(update={"blockers": (OPEN,)}))
        _, before = await served.ask("viewer", "GET", "/nodes/su0-n05")
        await served.store.cases.add(case_of("su0-n05"), now=NOW)

        _, node = await served.ask("viewer", "GET", "/nodes/su0-n05")
        _, listed = await served.ask("viewer", "GET", "/nodes?where=node=su0-n05")
        _, explained = await served.ask("viewer", "GET", "/nodes/su0-n05/explanation")
        _, case = await served.ask("viewer", "GET", "/cases/su0-n05-c0001")
        _, home = await served.ask("viewer", "GET", "/home")

        assert before["next_step"]["act"] == "retry"
        assert node["next_step"] == explained["step"] == case["step"]
        assert "Xid 79" in node["next_step"]["cause"]
        assert node["next_step"]["step"] == case["next_step"]
        assert home["blocked"] == []
        said = str([node, listed, explained, case, home])
        assert "Open a repair case" not in said
        assert "node retry" not in said

    run(scenario)


@pytest.mark.parametrize(("origin", "turn"), [(Origin.OPERATOR, "person"), (Origin.EVENT, None)])
def test_a_case_that_keeps_its_node_in_service_says_so_and_waits_on_a_list(
    origin: Origin, turn: str | None
) -> None:
    async def scenario(served: Served) -> None:
        kept = case_of("su0-n01", origin=origin, service=Service.KEEP, stage=Stage.OPENED)
        await served.store.cases.add(kept, now=NOW)

        _, node = await served.ask("viewer", "GET", "/nodes/su0-n01")
        _, home = await served.ask("viewer", "GET", "/home")

        assert "stays in service" in node["next_step"]["step"]
        assert node["next_step"]["turn"] == turn
        listed = [(c["case"], c["step"]) for c in home["cases"]]
        assert listed == ([(kept.id, node["next_step"]["step"])] if turn else [])

    run(scenario)


def test_the_command_line_marks_a_mistake_below_its_text() -> None:
    lines = mark_mistake("rack=a and drivr=1", 12, 5, ["driver"])
    far = mark_mistake("node=" + "x" * 200 + " drivr=1", 207, 5, [])

    assert lines[1].index("^") == lines[0].index("drivr")
    assert lines[1].count("^") == 5
    assert lines[2] == "  Allowed there: driver."
    assert far[1].index("^") == far[0].index("drivr")


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("SU0-N03", "node", "su0-n03"),
        ("leaf-su0", "switch", "leaf-su0-r0"),
        ("leaf-su0-r0/swp4", "port", "leaf-su0-r0/swp4"),
        ("mt-77", "serial", "MT-77"),
        ("10.0.0.4", "address", "10.0.0.4"),
        ("blue", "tenant", "blue"),
        ("su0-n05-c", "case", "su0-n05-c0001"),
        ("fanf", "alert", "FanFailed"),
        ("webhooks", "page", "webhooks"),
        ("new tenant", "page", "onboard"),
        ("take nodes in", "page", "hardware"),
        ("quota", "page", "tenants"),
        ("node ret", "verb", "node retry"),
    ],
)
def test_one_search_finds_everything_the_best_first(text: str, kind: str, found: str) -> None:
    async def scenario(served: Served) -> None:
        await put(served, seen("su0-n02", "9.1", "MT-77"))
        await served.store.cases.add(case_of("su0-n05"), now=NOW)
        path = f"/search?q={text.replace('/', '%2F').replace(' ', '%20')}"

        status, told = await served.ask("operator", "GET", path)

        assert status == 200
        assert (told["items"][0]["kind"], told["items"][0]["id"]) == (kind, found)

    run(scenario)


def test_the_search_knows_each_page_of_the_console_by_its_title_there() -> None:
    shell = (CONSOLE / "main.js").read_text()
    routes = re.search(r"const PAGES = \{(.*?)^\};", shell, re.DOTALL | re.MULTILINE)
    assert routes is not None
    pages = dict(re.findall(r'^  (\w+): \(\) => import\("\./(\w+\.js)"\)', routes[1], re.MULTILINE))
    of_tenants = re.search(r"OF_TENANTS = new Set\((\[.*?\])\)", shell)
    titles = dict(re.findall(r'\["(\w+)", "([^"]+)"\]', shell))  # those of the bar
    within_a_node = {"actions", "console", "logs"}

    assert set(pages) - within_a_node == set(finding.PAGES)
    assert of_tenants is not None
    assert {*json.loads(of_tenants[1]), "nodes"} == finding.TENANTS_PAGES
    assert len(titles) > 25
    for page, (title, _) in finding.PAGES.items():
        assert titles.get(page, title) == title
        headings = (CONSOLE / pages[page]).read_text() + (CONSOLE / "nodes_list.js").read_text()
        assert f'title: "{title}"' in headings, page


def test_a_tenants_search_finds_its_own_alone() -> None:
    async def scenario(served: Served) -> None:
        await put(served, seen("su0-n01", "9.1", "MT-77"))
        await served.store.cases.add(case_of("su0-n05"), now=NOW)
        for text in ("su0", "leaf-su0-r0%2F", "mt-77", "blue", "10.0.0", "fanf", "hangs", "c0001"):
            status, told = await served.ask("red", "GET", f"/search?q={text}")

            assert status == 200
            assert {hit["of"] for hit in told["items"]} <= {"", "su0-n01", "su0-n02"}, text
            kinds = {hit["kind"] for hit in told["items"]}
            assert kinds <= {"node", "port", "page", "verb", "tenant"}, text
            assert not [h for h in told["items"] if h["id"] == "blue"]
        _, verbs = await served.ask("red", "GET", "/search?q=webhook")
        assert verbs["items"] == []

    run(scenario)


def test_a_selection_names_the_releases_that_fit_all_its_nodes() -> None:
    async def scenario(served: Served) -> None:
        _, hosts = await select(served, "viewer", "kind=host")
        _, none = await select(served, "viewer", "node=nowhere")

        assert hosts["releases"] == {"spectrum-x-1.3.0": 6}
        assert "spectrum-x-1.3.0" in hosts["fitting"]
        assert none["fitting"] == []

    run(scenario)


def test_power_is_for_those_who_may() -> None:
    async def scenario(served: Served) -> None:
        asked = {
            who: (await served.ask(who, "GET", "/nodes/su0-n01"))[1]["power_actions"]
            for who in ("operator", "viewer", "red")
        }

        assert asked == {"operator": ["on", "off", "cycle"], "viewer": [], "red": ["cycle"]}

    run(scenario, api_tenant_power=("cycle",))


async def read_act(served: Served, what: str) -> dict[str, object]:
    """Return the newest row of the audit of an act that is done."""
    _, told = await served.ask("viewer", "GET", "/audit?limit=50")
    return next(r for r in told["items"] if (r["what"], r["state"]) == (what, "done"))


def test_an_audit_row_says_who_did_what_on_which_object_before_and_after() -> None:
    async def scenario(served: Served) -> None:
        tags, pin, policy = "/nodes/su0-n04/tags", "/pins/node:su0-n04", "/policies/slow"
        until = format_instant(NOW + 86_400)
        pinned = {"release": RELEASE, "reason": "it measures", "until": until}
        canary = {"policy": {"canary": {"size": 8}}}
        done = [
            await served.ask("operator", "PUT", tags, {"tags": ["loan"]}),
            await served.ask("operator", "PUT", tags, {"tags": ["loan", "fans"]}),
            await served.ask("operator", "PUT", pin, pinned),
            await served.ask("operator", "DELETE", pin),
            await served.ask("operator", "PUT", policy, canary),
            await served.ask("operator", "PATCH", policy, {"policy": {"canary": {"size": 2}}}),
        ]
        assert {status for status, _ in done} == {200}, done
        rows = {what: await read_act(served, what) for what in ("node.tag", "pin.remove")}
        tagged, removed = rows.values()
        changed = await read_act(served, "policy.put")

        assert (tagged["on"], tagged["before"]) == ("su0-n04", "tags=loan")
        assert tagged["who"]
        assert "loan" in str(tagged["after"])
        assert f"release={RELEASE}" in str(removed["before"])
        assert "it measures" in str(removed["before"])
        assert str(changed["before"]).startswith("policy={canary={size=8")
        assert "generation" not in str(changed["after"])

    run(scenario)


def test_an_act_on_a_whole_object_names_it() -> None:
    space = {"name": "red", "generation": 1, "file_storage": {"exports": [{"name": "scratch"}]}}

    row = events._audit_row(
        {
            "seq": 1,
            "at": NOW,
            "kind": "storage",
            "node": "",
            "digest": "",
            "detail": {"tenant": space},
        }
    )

    assert row.on == "red"


def test_acts_of_recovery_and_of_the_hardware_list_say_what_was_before() -> None:
    async def scenario(served: Served) -> None:
        book = served.store.recovery
        mixed = Difference(
            subject="su0-n04", kind=DifferenceKind.SERVES, row="in no network", world="in RED"
        )
        await book.put_survey([mixed], NOW)
        vault = Vault(served.store, MasterKey.generate())
        fed = [{"pdu": "pdu-2", "outlet": "4"}]
        known = {"name": "su0-n04", "kind": "host", "bmc": {"serial": "S1"}, "outlets": fed}
        await vault.put("sealed/1", "list", Secret(json.dumps({"site": "site", "nodes": [known]})))
        parts = replace(served.parts, vault=vault)

        async def before(kind: ChangeKind, subject: str, **arguments: str) -> dict[str, object]:
            asked = ChangeRequest(
                kind=kind, subject=subject, arguments=arguments, asked_by="ada", asked_at=NOW
            )
            return await read_before(parts, asked)

        settled = await before(ChangeKind.RECOVERY_SETTLE, "su0-n04", word="keep")
        listed = await before(ChangeKind.NODE_INTAKE, "site", sealed="sealed/1")
        gone = await before(ChangeKind.NODE_INTAKE, "site", sealed="sealed/2")

        assert settled == {"row": "in no network", "world": "in RED"}
        assert listed == {"su0-n04 outlets": "none"}
        assert gone == {}

    run(scenario)


def test_the_end_of_a_session_and_of_a_certificate_say_what_was_before() -> None:
    async def scenario(served: Served) -> None:
        begun = await served.client.post("/v1/session", headers=served.key("viewer"))
        assert begun.status == 200
        _, listed = await served.ask("operator", "GET", "/sessions")
        number = listed["items"][0]["id"]
        why = {"reason": "a wrong report"}
        done = [
            await served.ask("operator", "POST", f"/sessions/{number}/end"),
            await served.ask("operator", "POST", "/certificates/cert-su0-n01/revoke", why),
        ]
        assert [status for status, _ in done] == [200, 200], done
        _, told = await served.ask("viewer", "GET", "/audit?limit=50")
        ended = next(r for r in told["items"] if r["what"] == "session ended")
        revoked = await read_act(served, "certificate.revoke")

        assert ended["on"] == number
        assert f"subject={listed['items'][0]['subject']}" in ended["before"]
        assert "node=su0-n01" in str(revoked["before"])
        assert f"release={RELEASE}" in str(revoked["before"])

    run(scenario)


def test_lists_of_cases_and_certificates_say_how_many_there_are() -> None:
    async def scenario(served: Served) -> None:
        for name in ("su0-n01", "su0-n05"):
            await served.store.cases.add(case_of(name, tenant="red" * (name == "su0-n01")), now=NOW)

        _, cases = await served.ask("viewer", "GET", "/cases?limit=1")
        _, rest = await served.ask("viewer", "GET", f"/cases?limit=1&cursor={cases['next']}")
        _, of_red = await served.ask("red", "GET", "/cases")
        _, signed = await served.ask("viewer", "GET", "/certificates?limit=1")
        _, of_one = await served.ask("viewer", "GET", "/certificates?node=su0-n01")

        assert (len(cases["items"]), cases["total"], rest["total"], of_red["total"]) == (1, 2, 2, 1)
        assert {cases["items"][0]["id"], rest["items"][0]["id"]} == {
            "su0-n01-c0001",
            "su0-n05-c0001",
        }
        assert signed["total"] > len(signed["items"])
        assert of_one["total"] == len(of_one["items"])

    run(scenario)
