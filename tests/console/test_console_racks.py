"""The page of a rack: its elevation in Chromium, and a machine's words as words."""

from __future__ import annotations

from chromium import Looker
from console_dialogs import more
from console_fleet import EVIL
from console_racks import CAMPAIGN, LIAR, RACK, SILENT, WET

# of each drawn unit, from the top: name, upper edge, membership and water, and a colour of each
DRAWN = """() => [...document.querySelectorAll('svg.elevation g.unit')].map((g) => [
    g.querySelector('text').textContent, g.querySelector('rect.body').getBoundingClientRect().top,
    g.dataset.member, g.dataset.water, getComputedStyle(g.querySelector('rect.water')).fill])"""


def test_a_rack_is_drawn_with_what_is_wet_and_what_nobody_knows(look: Looker) -> None:
    more(look, "Racks")
    look.page.get_by_role("link", name=RACK, exact=True).click()
    look.page.get_by_role("heading", level=1, name=RACK).wait_for()

    drawn = look.run(DRAWN)
    names = [name for name, *_ in drawn]
    assert names == ["nvl-r01-s0", SILENT, LIAR, WET, "nvl-r01-p0"]
    tops = [top for _, top, *_ in drawn]
    assert tops == sorted(tops)
    height = tops[3] - tops[2]  # U12 and U11
    assert abs(tops[2] - tops[1] - height) < 0.5
    assert abs(tops[4] - tops[3] - 5 * height) < 0.5
    known = {name: (member, water) for name, _, member, water, _ in drawn}
    assert known[SILENT] == ("unknown", "unknown")
    assert (known[WET], known[LIAR]) == (("no", "wet"), ("yes", "dry"))  # it lies under none
    colours = {water: colour for *_, water, colour in drawn}
    assert len({colours["wet"], colours["dry"], colours["unknown"]}) == 3
    assert colours["unknown"] == "none"
    assert "coolant at" in (look.page.get_by_role("region", name="Against").text_content() or "")
    region = look.page.get_by_role("region", name="Firmware campaigns").first  # a card with a table
    campaigns = region.text_content() or ""
    assert all(word in campaigns for word in (CAMPAIGN, "held", "d01", f"{WET}/activate"))
    assert look.get("main").get_by_role("rowheader").count() == len(names) + 1


def test_words_of_a_rack_never_become_markup(look: Looker) -> None:
    words = EVIL.replace("\u202e", "\ufffd")
    look.to(f"racks/{RACK}", RACK)

    told = look.get("main").text_content() or ""
    assert told.count(words) >= 2  # its serial, and why another one did not answer
    assert look.get("main img, main script").count() == 0
    assert look.run("typeof owned") == "undefined"
    assert "owned" not in look.page.title()
