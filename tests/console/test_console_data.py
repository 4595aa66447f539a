"""What modules of the console do in the browser; those of data alone are in `units/`."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from typing import Any

from chromium import Looker
from console_site import Site

from provisioner.access.tokens import TOKEN, sha256_of
from provisioner.planning.certification.fault_rates import Stay, find_suspects


def call(walker: Looker, module: str, script: str, about: Any = None) -> Any:
    """Return the result of a function of (module, about)."""
    return walker.run(
        f"async (about) => {{ const m = await import('/console/{module}');"
        f" return ({script})(m, about); }}",
        about,
    )


def test_a_token_of_the_browser_is_one_that_the_server_takes(walker: Looker) -> None:
    made = call(walker, "token_data.js", "(m) => m.new_token()")

    assert TOKEN.fullmatch(made["token"])
    assert made["sha256"] == sha256_of(made["token"])


def test_what_happens_again_is_drawn_once(walker: Looker) -> None:
    walker.to("events", "Events")
    first = walker.get(".events li:not(.day)").first
    first.wait_for()
    first.evaluate("(e) => { e.dataset.mark = 'stays'; }")
    walker.page.get_by_label("Kind").fill("state")
    walker.page.get_by_label("Kind").fill("")

    assert walker.get(".events [data-mark=stays]").count() == 1


def test_a_healthy_node_is_a_short_page(walker: Looker) -> None:
    walker.to("nodes/su1-n00", "su1-n00")

    assert walker.run("document.documentElement.scrollHeight") < 3000


GROW = """async (m) => {
    const { ask } = await import('/console/api.js');
    const first = await ask('/nodes?limit=3');
    const drawn = [];
    const place = m.growing('/nodes', 3, { ...first, rows: first.items }, undefined, (rows) => {
        drawn.push(rows.length);
        return document.createElement('p');
    });
    const told = place.querySelector('[role=status]').textContent;
    [...place.querySelectorAll('button')].find((b) => b.textContent.startsWith('All')).click();
    const bar = place.querySelector('.notice');
    while (!bar.hidden) await new Promise((done) => setTimeout(done, 20));
    return [first.total, told, drawn];
}"""


def test_a_list_that_is_longer_says_how_many_there_are_and_fetches_the_others(
    walker: Looker,
) -> None:
    total, told, drawn = call(walker, "listing.js", GROW)

    assert told.startswith(f"3 of {total} are here")
    assert drawn == [3, total]


def test_a_hosts_page_shows_the_light_of_its_rails_and_which_end_to_clean(
    walker: Looker, site: Site
) -> None:
    days = []
    for number in range(20):
        known = {"serial": "MT1", "part": "NVIDIA MMS4X00", "kind": "optic", "low": -9.0}
        light = {"rx_dbm": round(0.8 - 0.3 * max(0, number - 9), 2), "tx_dbm": 0.6, "bias_ma": 60.0}
        light |= {"snr_db": 22.0 if number < 9 else 17.5, "pre_fec_ber": 2e-6}
        shown = {"values": light, "flaps": 0, "queues": {"pause_received": 40 + number}, **known}
        day = (date(2026, 5, 1) + timedelta(days=number)).isoformat()
        days.append(json.dumps({"day": day, "ports": {"swp1s0": shown}}))
    site.keep_days("leaf-su1-r0", days)
    walker.to("nodes/su1-n01", "su1-n01")

    rails = walker.get("section[aria-labelledby=s-rails]")
    rails.get_by_text("dirty, the node's end since").wait_for()
    assert rails.get_by_text("Clean both connectors").is_visible()
    assert rails.get_by_text("SNR 22.0 dB before and 17.5 dB now; pre-FEC BER 2e-06").is_visible()
    assert rails.get_by_role("columnheader", name="SNR, dB").is_visible()
    assert rails.get_by_role("img", name="Light received at the leaf").count() == 1
    rails.get_by_text("8 queues").click()
    pauses = "PFC pause frames of a day from 2026-05-01 to 2026-05-20: 40 to 59 frames"
    assert rails.get_by_role("img", name=pauses).is_visible()
    site.keep_days("leaf-su1-r0", ())


def test_the_version_that_makes_nodes_fail_stands_out_in_the_picture(walker: Looker) -> None:
    """Suspects of planted stays: nodes of one driver fail three times as often."""
    rng = random.Random(7)
    stays, sets = [], {}
    for number in range(60):
        driver = ("580.95", "570.86")[number % 2]
        sets[driver] = {"hgx.gpu.driver": driver, "bios": "1.0"}
        for day in range(90):
            failed = rng.random() < (0.06 if driver == "580.95" else 0.02)
            at = 86_400.0 * day
            stays.append(Stay(f"n{number}", at, at + 86_000.0, failed, driver))
    found = find_suspects(stays, sets, {f"n{n}": [f"rack=r{n % 6}"] for n in range(60)})
    told = {
        "items": [suspect.model_dump(mode="json") for suspect in found],
        "faults": sum(stay.failed for stay in stays),
        "node_days": 5400.0,
    }
    rows = call(
        walker,
        "suspects.js",
        "(m, told) => { const [, made] = m.suspects_table(told, { query: new URLSearchParams() });"
        " return [...made.querySelectorAll('tbody tr')].map((row) => [row.textContent,"
        " row.querySelectorAll('svg.accused').length, row.querySelector('a')?.hash ?? '']); }",
        told,
    )

    accused = [row for row in rows if row[1]]
    assert [("580.95" in text, link) for text, _, link in accused] == [
        (True, "#/nodes?where=hgx.gpu.driver%3D%22580.95%22")
    ]
    assert len(rows) == len(found) > 1


def test_the_page_of_cohorts_reads_the_suspects_after_it_is_shown(walker: Looker) -> None:
    walker.to("cohorts", "Cohorts")
    title = "Which version, place or part makes nodes fail"
    section = walker.get("section").filter(has_text=title).first
    section.get_by_text("node-days of the last 90").wait_for()

    assert "It is read now" not in section.inner_text()


REMEDY = """(m) => {
    const words = '`provisioner node retry su1-n00`, `provisioner tenant apply NAME`, `ls`, c0001';
    return m.remedy(words).filter((part) => part instanceof Node)
        .map((part) => [part.textContent, part.getAttribute('href')]);
}"""


def test_a_command_of_a_remedy_leads_to_where_the_console_does_the_same(walker: Looker) -> None:
    assert call(walker, "dom.js", REMEDY) == [
        ["provisioner node retry su1-n00", "#/nodes/su1-n00"],
        ["provisioner tenant apply NAME", "#/tenants"],
        ["ls", None],
        ["c0001", "#/campaigns/c0001"],
    ]


GROUPS = """(m) => {
    const place = m.listing({ caption: 'Things', name: (r) => r[0], again: () => {},
        rows: [['a', 'x'], ['b', 'y'], ['c', 'x']], group: (r) => r[1],
        columns: [{ head: 'Name', cell: (r) => r[0] }] });
    const told = () => [...place.querySelectorAll('details')]
        .map((d) => [d.querySelector('summary').textContent, d.open]);
    const before = told();
    const filter = place.querySelector('input');
    filter.value = 'c';
    filter.dispatchEvent(new Event('input'));
    return [before, told()];
}"""


def test_groups_of_a_table_fold_and_a_filter_opens_those_with_what_it_finds(
    walker: Looker,
) -> None:
    before, after = call(walker, "listing.js", GROUPS)

    assert before == [["x (2)", False], ["y (1)", False]]
    assert after == [["x (1)", True]]
