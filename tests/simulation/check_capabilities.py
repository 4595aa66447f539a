"""Many random histories of grants over adopted nodes, each judged; `make soak NAME=capabilities`.

    python tests/simulation/check_capabilities.py [histories] [--jobs N] [--record FILE] [--site N]

A history has grants and withdrawals by people, crashes of the daemon, ports that foreign hands
moved, reclaims and power cycles (`handing_over`). The devices judge it: an act that arrived at an
adopted node and had no grant in force is unlawful. Fifty histories share a site; each site that was
lived to its end is a line of JSON in FILE, and a run that is begun again goes on with the others.
`--site N` replays one.

Prints progress and each unlawful act; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from handing_over import Chronicle, live_histories
from virtual_time import run

HISTORIES = 10_000
OF_A_SITE = 50
STEPS = 4  # of a history, after the grants that it begins with
SHOWN_MAX = 20


def live_site(number: int, count: int = OF_A_SITE) -> dict[str, Any]:
    """Live the histories of one site; return what they did, as plain data."""
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    chronicle = Chronicle()
    failure = ""
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(number * OF_A_SITE, number * OF_A_SITE + count)
        try:
            run(live_histories(Path(folder), seeds, STEPS, chronicle))
        except Exception as error:  # a fault of our own is a failure as well
            failure = f"{type(error).__name__}: {error}"
    return {
        "site": number,
        "histories": chronicle.histories,
        "steps": dict(sorted(chronicle.steps.items())),
        "acts": chronicle.acts,
        "withheld": chronicle.withheld,
        "unlawful": chronicle.unlawful,
        "failure": failure,
        "cpu_s": round(time.process_time() - began, 1),
    }


def read_record(record: Path) -> dict[int, dict[str, Any]]:
    """Return the sites that were lived to their end before."""
    sites = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        try:
            site = json.loads(line)
        except ValueError:
            continue  # cut short
        sites[site["site"]] = site
    return sites


def is_bad(site: dict[str, Any]) -> bool:
    """Return whether an act without a grant arrived, or the site was not lived to its end."""
    return bool(site["unlawful"] or site["failure"])


def sum_up(sites: list[dict[str, Any]], wanted: int) -> dict[str, Any]:
    """Return all sites as one record."""
    steps: Counter[str] = Counter()
    for site in sites:
        steps.update(site["steps"])
    return {
        "histories": sum(s["histories"] for s in sites),
        "wanted": wanted,
        "steps": dict(sorted(steps.items())),
        "acts": sum(s["acts"] for s in sites),
        "withheld": sum(s["withheld"] for s in sites),
        "acts_without_a_grant": sum(len(s["unlawful"]) for s in sites),
        "bad_sites": [s["site"] for s in sites if is_bad(s)][:SHOWN_MAX],
        "cpu_s": round(sum(s["cpu_s"] for s in sites)),
    }


def report(line: str) -> None:
    """Print one line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Return 0 if all histories were lived, and no act arrived without a grant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("histories", nargs="?", type=int, default=HISTORIES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path, default=Path("build/capabilities.jsonl"))
    parser.add_argument("--site", type=int, help="live this site alone, without a record")
    options = parser.parse_args()
    if options.site is not None:
        alone = live_site(options.site)
        report("\n".join([*alone["unlawful"], alone["failure"]]))
        report(json.dumps(sum_up([alone], alone["histories"])))
        return int(is_bad(alone))
    options.record.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(-(-options.histories // OF_A_SITE))
    lived = {n: s for n, s in read_record(options.record).items() if n in numbers}
    report(f"{len(lived)} of {len(numbers)} sites were lived before")
    pool = multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=4)
    with pool, options.record.open("a") as file:
        for site in pool.imap_unordered(live_site, [n for n in numbers if n not in lived]):
            lived[site["site"]] = site
            file.write(json.dumps(site) + "\n")
            file.flush()
            bad = [f"  {text}" for text in (*site["unlawful"], site["failure"]) if text]
            report("\n".join([f"{len(lived)} of {len(numbers)} sites", *bad[:SHOWN_MAX]]))
    result = sum_up(list(lived.values()), options.histories)
    report(json.dumps(result))
    return int(bool(result["bad_sites"]) or result["histories"] < options.histories)


if __name__ == "__main__":
    sys.exit(main())
