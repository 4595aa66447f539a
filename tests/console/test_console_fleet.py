"""A fleet of 65,536 is as smooth as an empty page."""

from __future__ import annotations

import json

import pytest
from chromium import Looker
from large_fleet import large_map
from playwright.sync_api import Route
from shared_browser import SHARED, Kept
from smoothness import measure

SIZE = 65_536
# ratios to an empty page's frame, which other work on the machine hardly changes; rows of the
# table are laid out anew, so that it suffers most from such work (bench_console.py has the truth)
FRAMES_MOST = {"map": 4.2, "rails": 4.2, "table": 20.2}
TURN_MOST = 120  # frames of an empty page; each is some 5 where nothing else runs


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


@pytest.mark.long  # another start of Chromium
def test_a_browser_that_died_and_a_page_that_complained_end_no_other_test(site) -> None:
    kept = Kept(lambda: SHARED.get_operator().open_page())
    first = kept.lend()
    same = kept.lend()
    first.complaints.append("the network was lost")
    second = kept.lend()
    SHARED.get_browser().close()
    SHARED.failures += 1  # as after the test that met the death
    SHARED.revive()
    third = kept.lend()
    third.to("home", "Home")
    kept.drop()

    assert same is first
    assert len({id(first), id(second), id(third)}) == 3
