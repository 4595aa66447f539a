"""What modules of the console do in the browser; those of data alone are in `units/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import Looker
from shared_browser import SHARED

from provisioner.access.tokens import TOKEN, sha256_of


@pytest.fixture(scope="module")
def reader() -> Iterator[Looker]:
    """A page that is only asked for its modules."""
    with SHARED.get_operator().open_page() as looker:
        yield looker


def call(reader: Looker, module: str, script: str, about: Any = None) -> Any:
    """Return the result of a function of (module, about)."""
    return reader.run(
        f"async (about) => {{ const m = await import('/console/{module}');"
        f" return ({script})(m, about); }}",
        about,
    )


def test_a_token_of_the_browser_is_one_that_the_server_takes(reader: Looker) -> None:
    made = call(reader, "token_data.js", "(m) => m.new_token()")

    assert TOKEN.fullmatch(made["token"])
    assert made["sha256"] == sha256_of(made["token"])


def test_what_happens_again_is_drawn_once(reader: Looker) -> None:
    reader.to("events", "Events")
    first = reader.get(".events li:not(.day)").first
    first.wait_for()
    first.evaluate("(e) => { e.dataset.mark = 'stays'; }")
    reader.page.get_by_label("Kind").fill("state")
    reader.page.get_by_label("Kind").fill("")

    assert reader.get(".events [data-mark=stays]").count() == 1


def test_a_healthy_node_is_a_short_page(reader: Looker) -> None:
    reader.to("nodes/su1-n00", "su1-n00")

    assert reader.run("document.documentElement.scrollHeight") < 3000
