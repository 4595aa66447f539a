"""How smooth a large fleet is in Chromium, next to a page that has nothing to draw.

A test uses it, and tests/bench/bench_console.py with a fleet that a real store serves.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from chromium import Looker
from playwright.sync_api import Page

FRAMES = 45
# scrolls a box from its top to its end, so much in each frame; gives the frames' lengths in ms
SCROLL = """async ([selector, frames]) => {
    const box = document.querySelector(selector);
    const long = [];
    const watch = new PerformanceObserver(
        (list) => long.push(...list.getEntries().map((entry) => entry.duration)));
    watch.observe({ type: 'longtask' });
    const next = () => new Promise(requestAnimationFrame);
    const spans = [];
    let last = await next();
    for (let n = 0; n <= frames; n += 1) {
        box.scrollTop = ((box.scrollHeight - box.clientHeight) * n) / frames;
        const now = await next();
        spans.push(now - last);
        last = now;
    }
    watch.disconnect();
    return { spans, long };
}"""
# what one turn costs, from the event to the second frame after it; in frames of the empty page
TURN = """async ([selector, event, value]) => {
    const element = document.querySelector(selector);
    const next = () => new Promise(requestAnimationFrame);
    await next();
    const begun = performance.now();
    if (value !== null) element.value = value;
    element.dispatchEvent(event === 'click' ? new MouseEvent('click', { bubbles: true })
        : new Event(event, { bubbles: true }));
    await next();
    await next();
    return performance.now() - begun;
}"""
EMPTY = """() => {
    const box = document.createElement('div');
    box.id = 'empty';
    box.className = 'map';
    box.append(document.createElement('div'));
    box.firstChild.style.height = '20000px';
    document.getElementById('main').replaceChildren(box);
}"""


def frames(page: Page, selector: str, count: int = FRAMES) -> dict[str, Any]:
    """Median and worst frame, and long tasks (over 50 ms each), while it is scrolled through."""
    told = page.evaluate(SCROLL, [selector, count])
    spans = told["spans"][1:]
    return {
        "median": round(median(spans), 2),
        "worst": round(max(spans), 2),
        "long": sum(told["long"]),
        "of": round(sum(spans), 1),
    }


def turn(page: Page, selector: str, event: str, value: str | None = None) -> float:
    """Milliseconds that one turn takes, until it is drawn."""
    return round(page.evaluate(TURN, [selector, event, value]), 1)


def measure(look: Looker) -> dict[str, Any]:
    """Everything on the fleet's page, then the same on an empty one."""
    page = look.page
    look.get(".legend .entry").first.wait_for()
    map_ = frames(page, ".map")
    turns = {
        "colour by release": turn(page, "#field-release", "click"),
        "arrange by rail": turn(page, "#by-rail", "click"),
    }
    rails = frames(page, ".map")
    turns["arrange by rack"] = turn(page, "#by-rack", "click")
    turns["show the table"] = turn(page, "#as-table", "click")
    rows = frames(page, ".rows")
    look.run(EMPTY)
    empty = frames(page, "#empty")
    return {"empty": empty, "map": map_, "rails": rails, "table": rows, "turns": turns}
