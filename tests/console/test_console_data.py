"""What modules of the console do in the browser; those of data alone are in `units/`."""

from __future__ import annotations

from typing import Any

from chromium import Looker

from provisioner.access.tokens import TOKEN, sha256_of


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
