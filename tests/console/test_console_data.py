"""The console's modules without a page: sentences, tables, tokens, times, and silent streams.

They run in the browser that they are for; each test asks a module that the server serves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import Looker
from console_site import Site
from playwright.sync_api import Browser

from provisioner.access.tokens import TOKEN, sha256_of


@pytest.fixture(scope="module")
def reader(site: Site, browser: Browser) -> Iterator[Looker]:
    """A page that is only asked for its modules."""
    with Looker(browser, site.url, site.tokens["viewer"]) as looker:
        yield looker


def call(reader: Looker, module: str, script: str, about: Any = None) -> Any:
    """Return the result of a function of (module, about)."""
    return reader.run(
        f"async (about) => {{ const m = await import('/console/{module}');"
        f" return ({script})(m, about); }}",
        about,
    )


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"to": "rolling_back", "why": "two failed"}, "became rolling back; two failed"),
        ({"request": "retry", "id": 3, "approved": "", "by": "ada"}, "request retry; id 3"),
        ({"limit_s": 7200, "until": 0, "compromised": False}, "limit 2 h 0 min"),
        ({"parts": [{"slot": "G1", "found": None}], "left": []}, "parts: slot G1"),
        ({"policy": {"waves": {"sizes": [1, 2]}}}, "sizes: 1, 2"),
        ({"at_once": True}, "at once"),
    ],
)
def test_a_row_of_the_journal_is_a_sentence_and_no_record(
    reader: Looker, detail: dict[str, Any], said: str
) -> None:
    shown = call(reader, "sentences.js", "(m, d) => m.sentence({ detail: d })", detail)

    assert shown == said
    assert not set('{}[]"') & set(shown)


def test_a_filter_takes_rows_with_every_word_and_the_order_is_that_of_numbers(
    reader: Looker,
) -> None:
    rows = [["n10", 3], ["n2", 20], ["m1", 100]]
    script = """(m, rows) => {
        const name = (r) => r[0], size = (r) => r[1];
        return [m.matching(rows, [name, size], 'N 0').map(name),
            m.sorted(rows, name, false).map(name), m.sorted(rows, size, true).map(name)]; }"""

    fitting, by_name, by_size = call(reader, "listing_data.js", script, rows)

    assert fitting == ["n10", "n2"]
    assert by_name == ["m1", "n2", "n10"]
    assert by_size == ["m1", "n2", "n10"]


def test_a_token_of_the_browser_is_one_that_the_server_takes(reader: Looker) -> None:
    made = call(reader, "token_data.js", "(m) => m.new_token()")

    assert TOKEN.fullmatch(made["token"])
    assert made["sha256"] == sha256_of(made["token"])


def test_times_are_read_as_text_and_as_seconds(reader: Looker) -> None:
    script = "(m) => [m.when('2027-01-15T08:00:00Z'), m.when(1.8e9), m.when(''), m.when(0)]"

    text, number, *none = call(reader, "words.js", script)

    assert text == number == "15 Jan 2027, 08:00:00 UTC"
    assert none == ["—", "—"]


def test_a_stream_that_is_silent_for_too_long_is_given_up(reader: Looker) -> None:
    script = """async (m) => {
        let cancelled = false;
        const cancel = async () => { cancelled = true; };
        const silent = { read: () => new Promise(() => {}), cancel };
        const speaking = { read: async () => ({ value: 'x', done: false }), cancel };
        const why = await m.within(silent, 20).catch((error) => error.message);
        return [why, cancelled, (await m.within(speaking, 20)).value]; }"""

    assert call(reader, "live.js", script) == ["the stream is silent", True, "x"]


def test_nothing_that_waits_makes_a_calm_home(reader: Looker) -> None:
    names = ["blocked", "cases", "approvals", "alerts", "certificates", "campaigns", "tenants"]
    calm: dict[str, list[Any]] = {name: [] for name in names}

    assert call(reader, "home_data.js", "(m, home) => m.is_calm(home)", calm)
    for name in names:
        busy = {**calm, name: [{}]}
        assert not call(reader, "home_data.js", "(m, home) => m.is_calm(home)", busy)


def test_what_happens_again_is_drawn_once(site: Site, browser: Browser) -> None:
    with Looker(browser, site.url, site.tokens["viewer"]) as looker:
        looker.to("events", "Events")
        first = looker.get(".events li:not(.day)").first
        first.wait_for()
        first.evaluate("(e) => { e.dataset.mark = 'stays'; }")
        looker.page.get_by_label("Kind").fill("state")
        looker.page.get_by_label("Kind").fill("")
        assert looker.get(".events [data-mark=stays]").count() == 1


def test_a_healthy_node_is_a_short_page(reader: Looker) -> None:
    reader.to("nodes/su1-n00", "su1-n00")

    assert reader.run("document.documentElement.scrollHeight") < 3000
