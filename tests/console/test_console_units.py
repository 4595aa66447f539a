"""The console's modules of data, by Node.js' own test runner: no page, no browser, no server.

Playwright brings the Node.js that runs them. A person may run it alone: `node --test
tests/console/units/`.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from playwright._impl._driver import compute_driver_executable

UNITS = Path(__file__).parent / "units"
MODULES = Path(__file__).parents[2] / "provisioner" / "api" / "console"
OPENAPI = Path(__file__).parents[1] / "api" / "openapi-v1.json"
DOM = re.compile(r"\b(document|window)\b")


def test_every_unit_test_of_the_console_passes() -> None:
    node = str(compute_driver_executable()[0])
    files = sorted(str(path) for path in UNITS.glob("*.test.mjs"))
    run = subprocess.run(
        [node, "--test", "--test-reporter=tap", *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    passed = re.search(r"^# pass (\d+)$", run.stdout, flags=re.MULTILINE)

    assert run.returncode == 0, run.stdout + run.stderr
    assert passed is not None
    assert int(passed.group(1)) >= len(files)


def test_modules_of_data_need_no_page() -> None:
    """A module whose name ends in "_data" is tested without a page, so it may not touch one."""
    tested = "".join(path.read_text(encoding="utf-8") for path in UNITS.glob("*.test.mjs"))
    data = [p for p in MODULES.glob("*_data.js") if p.name != "fleet_data.js"]

    assert len(data) >= 5
    for path in data:
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not DOM.search(code), path.name
        assert f"/{path.name}" in tested, f"{path.name} has no unit test"


# what is asked for as a few of the newest, beside a page that has all of them
NEWEST = {
    ("audit.js", "/audit"),  # goes on by its own button
    ("credentials.js", "/requests"),  # a password may be read for an hour
    ("events.js", "/events"),
    ("home.js", "/events"),
    ("node.js", "/nodes/{}/actions"),
    ("node.js", "/cases"),
    ("node.js", "/events"),
    ("tenants.js", "/notices"),
}


def test_no_page_cuts_a_list_of_the_server_in_silence() -> None:
    """A list in pages is read whole by `all`, or by `some` and `grown`, which tell its total and
    fetch the rest. One answer of it alone is a hundred rows."""
    paths = json.loads(OPENAPI.read_text(encoding="utf-8"))["paths"]
    paged = {
        re.sub(r"\{\w+\}", "{}", path.removeprefix("/v1"))
        for path, ways in paths.items()
        if any(p.get("name") == "cursor" for p in ways.get("get", {}).get("parameters", ()))
    }
    cut = set()
    for module in MODULES.glob("*.js"):
        for asked in re.findall(r"\b(?:ask|maybe|quiet)\([`\"](/[^`\"?]*)", module.read_text()):
            path = re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}", "{}", asked)
            if path in paged:
                cut.add((module.name, path))

    assert {"/alerts", "/campaigns", "/certificates", "/tenants"} <= paged
    assert cut <= NEWEST
