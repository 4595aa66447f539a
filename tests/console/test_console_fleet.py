"""A fleet of 65,536 is as smooth as an empty page, and is filtered as the API filters it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chromium import Looker
from large_fleet import large_map
from playwright.sync_api import Route
from smoothness import measure

from provisioner.model.input_error import InputError
from provisioner.planning.campaigns.select_expression import NODE_FIELDS, parse

SIZE = 65_536
# ratios to an empty page's frame, which other work on the machine hardly changes; rows of the
# table are laid out anew, so that it suffers most from such work (bench_console.py has the truth)
FRAMES_MOST = {"map": 4.2, "rails": 4.2, "table": 20.2}
TURN_MOST = 120  # frames of an empty page; each is some 5 where nothing else runs
EXPRESSIONS = (
    "state=released", "state!=released rack=rack-00*", "su=1,2 and not (tenant=t1 or tenant=t?)",
    "rail=7 leaf=leaf-3-*", 'tenant=""', "node=n0[0-4]*", "node=n0[!0-4]00", "all", "not all",
    "rack=[a-c]*", "rack=*[", "tenant=*1* or su=0", "reason=check_failed", "STATE=released",
    "state=", "state=released)", "(state=released", "a b", "node=????1", "and=or", "",
)  # fmt: skip
PICK = """async ([text, fields, rows]) => {
    const { matches, parse } = await import('/console/expression.js');
    let root;
    try { root = parse(text, fields); } catch { return 'no'; }
    return rows.filter((row) => matches(root, (field) => row[field])).map((row) => row.node[0]);
}"""


@pytest.mark.long  # a frame takes what the machine leaves it: `make bench NAME=console` measures
def test_65536_nodes_scroll_and_turn_like_an_empty_page(site, browser) -> None:
    def answer(route: Route) -> None:
        """Put the large fleet in place of the site's own, so that its nodes are not added to it."""
        body = large_map(SIZE, route.fetch().json()["change"])
        route.fulfill(body=body, content_type="application/json")

    with Looker(browser, site.url, site.tokens["operator"]) as look:
        look.page.route("**/v1/fleet/map", answer)
        for _ in range(3):  # the machine may be busy; it is smooth if it ever was
            look.page.reload()
            look.page.get_by_text("65,536 nodes").first.wait_for()
            told = measure(look)
            frame = told["empty"]["median"]
            rough = {n: told[n] for n, m in FRAMES_MOST.items() if told[n]["median"] > m * frame}
            slow = {n: took for n, took in told["turns"].items() if took > TURN_MOST * frame}
            if not rough and not slow:
                return
    pytest.fail(f"not smooth: {rough or slow}, of {json.dumps(told)}")


def ours(text: str, rows: list[dict[str, Any]]) -> list[str] | str:
    """What the server picks; "no" if it cannot be read."""
    try:
        expression = parse(text, NODE_FIELDS)
    except InputError:
        return "no"
    facts = [{field: tuple(values) for field, values in row.items()} for row in rows]
    return [fact["node"][0] for fact in facts if expression.matches_facts(fact)]


def test_the_browser_picks_what_the_api_picks(look: Looker) -> None:
    rows: list[dict[str, Any]] = [
        {
            **{field: [] for field in NODE_FIELDS},
            "node": [f"n{n:05d}"],
            "state": [("released", "converging", "quarantined")[n % 3]],
            "tenant": [f"t{n % 4}"] if n % 5 else [""],
            "su": [str(n // 8)],
            "rack": [f"rack-{n // 4:05d}"],
            "leaf": [f"leaf-{n // 8}-r{r}" for r in range(8)],
            "rail": [str(r) for r in range(8)],
            "reason": ["check_failed"] if n % 3 == 2 else [],
        }
        for n in range(64)
    ]
    fields = list(NODE_FIELDS)
    told = {text: look.run(PICK, [text, fields, rows]) for text in EXPRESSIONS}

    assert told == {text: ours(text, rows) for text in EXPRESSIONS}
    assert {0, 64} < {len(picked) for picked in told.values() if picked != "no"}
