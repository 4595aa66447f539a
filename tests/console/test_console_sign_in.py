"""A person signs in at the provider in a real browser, and proves presence there once more."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import COOKIE, Looker
from console_site import Site
from oidc_server import Provider
from test_console_use import age_sessions

from provisioner.model.node import State


@pytest.fixture(scope="module")
def provider(own_network: None) -> Iterator[Provider]:
    with Provider() as served:
        yield served


@pytest.fixture(scope="module")
def site(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    chosen = provider.add_console(f"https://127.0.0.1:{port}")
    folder = Path(tmp_path_factory.mktemp("site"))
    with Site(folder, chosen={**chosen, "api_port": port}) as served:
        yield served


def test_a_person_signs_in_by_one_click(site: Site, provider: Provider, browser) -> None:
    with Looker(browser, site.url) as looker:
        page = looker.page
        page.get_by_role("link", name="Sign in at 127.0.0.1").click()
        page.locator("#bar").wait_for()
        looker.settled()

        assert looker.run("fetch('/v1/me').then((a) => a.json()).then((m) => m.subject)") == "ada"
        assert looker.run("location.pathname + location.search") == "/console/"
        kept = {c["name"]: c for c in looker.context.cookies()}
        assert set(kept) == {COOKIE}
        assert (kept[COOKIE]["httpOnly"], kept[COOKIE]["sameSite"]) == (True, "Strict")


def test_a_person_without_a_role_is_shown_why(site: Site, provider: Provider, browser) -> None:
    provider.people["ada"].claims["roles"] = []
    try:
        with Looker(browser, site.url) as looker:
            looker.page.get_by_role("link", name="Sign in at 127.0.0.1").click()
            looker.page.get_by_text(
                "You are known to the provider, and have no role here"
            ).wait_for()
            assert looker.run("location.search") == ""
            assert looker.barriers() == []
    finally:
        provider.people["ada"].claims["roles"] = ["operator"]


def test_a_reclaim_is_proved_at_the_provider_in_a_tab_that_closes(site: Site, browser) -> None:
    with Looker(browser, site.url) as looker:
        page = looker.page
        page.get_by_role("link", name="Sign in at 127.0.0.1").click()
        page.locator("#bar").wait_for()
        looker.settled()
        name = next(n.id for n in site.do(site.store.nodes.list()) if n.state is State.RELEASED)
        looker.to(f"nodes/{name}", name)
        site.do(age_sessions(site))
        page.get_by_role("button", name="Reclaim").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Also if it could not serve").check()
        dialog.get_by_role("button", name="Reclaim").click()
        again = page.get_by_role("dialog", name="Sign in again")
        again.wait_for()
        assert site.do(site.store.nodes.get(name)).state is State.RELEASED

        again.get_by_role("link", name="Sign in at 127.0.0.1").click()
        page.get_by_role("dialog").first.wait_for(state="detached")
        page.get_by_role("heading", name=name, level=1).wait_for()

        assert site.do(site.store.nodes.get(name)).state is State.DRAINING
        assert looker.context.pages == [page]
