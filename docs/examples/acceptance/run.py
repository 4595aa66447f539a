#!/usr/bin/env python3
"""Run NVIDIA's ai-cloud-validation against a demonstration, and counter-proofs of each pass.

    run.py --suite DIR --python .../bin/python [--counterproofs]

The last output is one JSON object: passed, failed, skipped with reasons, of. A pass counts only if
the same step fails once the thing behind it is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import counterproof_rows
import counterproofs
import yaml
from demonstration import Demonstration, run_demonstration
from guest_host import ToolError, read_last_lines
from second_site import run_second_site
from verdicts import OWN, Verdict, read_verdicts

HERE = Path(__file__).resolve().parent
# the one that breaks nodes is the last
SUITES = (
    *("control-plane", "iam", "network", "security", "observability", "image-registry"),
    *("own", "bare_metal"),
)
SUITE_LIMIT_S = 3000


def write_configuration(
    suite: Path, name: str, out: Path, site: Demonstration, only: Collection[str]
) -> Path:
    """Write the configuration of one suite with this run's folders and nodes; `only`: its steps."""
    text = (HERE / f"{name}.yaml").read_text(encoding="utf-8")
    text = text.replace("SUITE", str(suite)).replace("HERE", str(HERE))
    content = yaml.safe_load(text)
    content["tests"]["settings"].update(site.nodes)
    if site.guest is None:
        content["tests"]["exclude"] = {"labels": ["ssh"]}
    for command in content["commands"].values():
        command["steps"] = [s for s in command["steps"] if not only or s["name"] in only]
    file = out / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file


def run_suite(python: Path, configuration: Path, out: Path, site: Demonstration) -> Path:
    """Run the suite's own runner and return its JUnit file."""
    junit = out / f"{configuration.stem}.junit.xml"
    junit.unlink(missing_ok=True)  # of an earlier run
    environment = {**os.environ, **site.environment()}
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    environment.pop("PYTHONPATH", None)
    if configuration.stem == OWN:  # the suite cannot have released checks that are not its own
        environment["ISVTEST_INCLUDE_UNRELEASED"] = "1"
    words = ["-m", "isvctl.main", "test", "run", "-f", str(configuration), "--no-upload"]
    if configuration.stem != "bare_metal":
        words += ["--capability", "bare_metal"]
    said = out / f"{configuration.stem}.log"
    with said.open("wb") as log, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [str(python), *words, "--junitxml", str(junit)],
            env=environment,
            cwd=out,
            stdout=log,
            stderr=log,
            timeout=SUITE_LIMIT_S,
            check=False,  # it ends with 1 if any check failed
        )
    if not junit.exists():
        raise ToolError(f"the suite {configuration.stem} came to no result{read_last_lines(said)}")
    return junit


def count(verdicts: dict[str, Verdict], proofs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the summary of all ids; a pass without a counter-proof is no pass."""
    passed = []
    failed = []
    skipped = {}
    for test_id, verdict in sorted(verdicts.items()):
        unproved = proofs is not None and not proofs.get(test_id, {}).get("holds")
        if verdict.state == "passed" and unproved:
            skipped[test_id] = "passed, but without a counter-proof: it does not count"
        elif verdict.state == "passed":
            passed.append(test_id)
        elif verdict.state == "failed":
            failed.append(test_id)
        else:
            skipped[test_id] = verdict.message
    return {"passed": len(passed), "failed": failed, "skipped": skipped, "of": len(verdicts)}


def read_choice(texts: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the suites to run, each with its steps (none: all): SUITE or SUITE:STEP,STEP."""
    if not texts:
        return dict.fromkeys(SUITES, frozenset())
    parts = [text.partition(":") for text in texts]
    return {name: frozenset(filter(None, steps.split(","))) for name, _, steps in parts}


def choose_rows(
    rows: Sequence[counterproof_rows.Row], choice: Mapping[str, Collection[str]]
) -> tuple[counterproof_rows.Row, ...]:
    """Return the counter-proofs of the steps that are run."""
    return tuple(
        row
        for row in rows
        if row.suite in choice and (not choice[row.suite] or row.step in choice[row.suite])
    )


def read_version(suite: Path) -> str:
    """Return the version that the suite's package names."""
    for line in (suite / "isvctl" / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("version"):
            return line.split('"')[1]
    return "unknown"


def main() -> int:
    """Run the suites and the counter-proofs, write the result, and print its summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", type=Path, required=True, help="folder with the suite")
    parser.add_argument("--python", type=Path, required=True, help="Python with its packages")
    parser.add_argument("--out", type=Path, default=Path("build/acceptance"))
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="run this part, SUITE or SUITE:STEP,STEP; the others stay as --result has them",
    )
    parser.add_argument("--counterproofs", action="store_true", help="these only")
    parser.add_argument("--result", type=Path, help="file to write the result to")
    options = parser.parse_args()
    suite = options.suite.resolve()
    python = options.python.absolute()  # not resolved: a link is how a venv names itself
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / "evidence", ignore_errors=True)
    choice = read_choice(options.only)
    target = options.result or out / "result.json"
    verdicts: dict[str, Verdict] = {}
    proofs: dict[str, Any] = {}
    parts = set(options.only)
    nodes = options.nodes
    if options.only:
        earlier = json.loads(target.read_text(encoding="utf-8"))
        verdicts = {i: Verdict(**fields) for i, fields in earlier["verdicts"].items()}
        proofs = earlier["counterproofs"]
        parts |= set(earlier.get("only", ()))
        nodes = earlier["nodes"]
    shutil.rmtree(out / "second", ignore_errors=True)
    with (
        run_second_site(out / "second") as second,
        run_demonstration(out / "site", options.nodes) as site,
        ExitStack() as stack,
    ):
        site.second = second
        stack.enter_context(site.logging())
        stack.enter_context(site.guested(out / "guest", Path("build/acceptance-guest").resolve()))
        rows = choose_rows(counterproof_rows.BEFORE, choice)
        proofs |= counterproofs.prove(site, suite, python, rows)
        for name in () if options.counterproofs else SUITES:
            if name in choice:
                configuration = write_configuration(suite, name, out, site, choice[name])
                junit = run_suite(python, configuration, out, site)
                verdicts |= read_verdicts(suite, name, junit, choice[name])
        rows = choose_rows(counterproof_rows.AFTER, choice)
        proofs |= counterproofs.prove(site, suite, python, rows)
    (out / "counterproofs.json").write_text(json.dumps(proofs, indent=1), encoding="utf-8")
    if options.counterproofs:
        broken = sorted(i for i, p in proofs.items() if not p["holds"])
        sys.stdout.write(json.dumps({"held": len(proofs) - len(broken), "broken": broken}) + "\n")
        return 1 if broken else 0
    summary = count(verdicts, proofs)
    result = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "suite_version": read_version(suite),
        "nodes": nodes,
        "only": sorted(parts),
        "summary": summary,
        "verdicts": {i: vars(v) for i, v in sorted(verdicts.items())},
        "counterproofs": proofs,
    }
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ToolError as failed:
        sys.exit(f"error: {failed}")
