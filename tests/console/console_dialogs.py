"""Steps that jobs share: a page of the menu, and a dialog that shows its dry run first."""

from __future__ import annotations

from chromium import Looker


def open_entry(looker: Looker, page: str, entry: str) -> None:
    """Open a page by the menu, and one entry of its list."""
    open_page(looker, page)
    looker.get("main").get_by_role("link", name=entry, exact=True).first.click()
    looker.page.get_by_role("heading", level=1, name=entry).wait_for()


def open_page(looker: Looker, page: str) -> None:
    """Open a page by the menu."""
    looker.get("nav").get_by_role("link", name=page, exact=True).click()
    looker.page.get_by_role("heading", level=1, name=page).wait_for()


def ask_for(looker: Looker, verb: str, fields: dict[str, str], shows: str = "") -> str:
    """Press a button, fill its dialog in, wait for the dry run and agree; return the dry run."""
    looker.get("main").get_by_role("button", name=verb, exact=True).first.click()
    return agree(looker, verb, fields, shows)


def agree(looker: Looker, verb: str, fields: dict[str, str], shows: str = "") -> str:
    """Fill the open dialog in and press its button once the dry run says `shows`."""
    dialog = looker.page.get_by_role("dialog")
    for label, value in fields.items():
        dialog.get_by_label(label).fill(value)
    plan = dialog.locator(".plan")
    plan.get_by_text(shows).first.wait_for()
    dialog.locator("button[type=submit]:not([disabled])").wait_for()
    text = plan.text_content() or ""
    dialog.get_by_role("button", name=verb, exact=True).click()
    dialog.wait_for(state="detached")
    return text


def open_node(looker: Looker, name: str) -> None:
    """Open a node by its name in the bar."""
    looker.page.get_by_role("combobox", name="Search").fill(name)
    looker.page.keyboard.press("Enter")
    looker.page.get_by_role("heading", level=1, name=name).wait_for()


def more(looker: Looker, page: str) -> None:
    """Open a page that is behind the button "More"."""
    button = looker.page.get_by_role("button", name="More", exact=True)
    if button.get_attribute("aria-expanded") == "true":  # a job begins with it folded
        button.evaluate("(button) => button.click()")
    button.click()
    looker.get("#more-pages").get_by_role("link", name=page, exact=True).click()
    looker.page.get_by_role("heading", level=1, name=page).wait_for()


def search_page(looker: Looker, page: str) -> None:
    """Open a page by typing its name into the search."""
    looker.page.keyboard.press("/")
    looker.page.keyboard.type(page)
    looker.get("#found").get_by_text(page).first.wait_for()
    looker.page.keyboard.press("Enter")
    looker.page.get_by_role("heading", level=1, name=page).wait_for()
