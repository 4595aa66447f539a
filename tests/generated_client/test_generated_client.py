"""A Python client that others' generator makes of our OpenAPI document does the daily jobs.

The generator is openapi-python-client from PyPI, by digest, in an environment of its own; the
client is what it writes, unchanged, with our own types nowhere near.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from api_document import read_document
from console_release import EARLIER, NEWER
from console_site import Site
from daily_worlds import HELD, WORLDS
from machine_jobs import PASSWORD
from served import RELEASE

HERE = Path(__file__).parent
JOBS = HERE / "daily_jobs.py"
PAGE = Path(__file__).parents[1] / "console" / "console_jobs.md"
BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"
DOCUMENT = read_document()
SECRET = "whsec_" + base64.b64encode(b"0" * 32).decode()
# jobs that the console's page does not have
BESIDE = [
    (job, "operator")
    for job in (
        "Keep a policy under a name", "Try an overlay", "See the hardware list",
        "Resume and remove a receiver of events",
    )
]  # fmt: skip
# answers that are files: a generator leaves them out, and says so
FILES = {"GET /v1/cases/{case}/bundle"}


def run(*words: Any) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a virtual environment with the generator."""
    folder = tmp_path_factory.mktemp("generator") / "venv"
    run(sys.executable, "-m", "venv", folder)
    lock = HERE / "client.lock"
    run(folder / "bin" / "pip", "install", "-q", "--require-hashes", "-r", lock)
    return folder


def list_jobs() -> list[tuple[str, str]]:
    """Return each job of the page with its role."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (\w+) \| \d+ \|$", text, re.MULTILINE)
    return [(job, role) for job, role in rows]


def read_table() -> dict[str, list[str]]:
    """Return the operations of each job, as the page says."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|$", table, re.MULTILINE)
    return {job: re.findall(r"`(\w+)`", operations) for job, operations in rows}


def replace_table(page: str, rows: list[tuple[str, list[str]]]) -> str:
    """Return the page with other operations between their marks."""
    lines = [f"| {job} | {', '.join(f'`{name}`' for name in names)} |" for job, names in rows]
    table = "\n".join(["| job | operations |", "|---|---|", *lines])
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def test_each_job_of_the_console_names_its_operations_of_the_api():
    operations = {
        operation["operationId"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
    }
    table = read_table()

    assert list(table) == [job for job, _ in list_jobs()]
    assert {name for names in table.values() for name in names} - operations == set()


def test_each_job_of_the_console_is_a_job_of_the_client():
    text = JOBS.read_text(encoding="utf-8").partition("JOBS: ")[2]
    jobs = re.findall(r'^    "([^"]+)": ', text, re.MULTILINE)

    assert jobs == [job for job, _ in [*list_jobs(), *BESIDE]]
    assert set(WORLDS) <= set(jobs)


def test_every_schema_has_a_name_and_a_title_of_its_own():
    """A generator makes one class of two schemas with one title, and drops what differs."""
    schemas = DOCUMENT["components"]["schemas"]

    assert [name for name in schemas if "__" in name] == []
    assert {name: s["title"] for name, s in schemas.items()} == {name: name for name in schemas}


@pytest.mark.long
def test_a_generated_client_does_the_daily_jobs(environment: Path, tmp_path: Path):
    """Each job begins with the world that the console's job of this name begins with."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    package = tmp_path / "provisioner_client"
    generate = [environment / "bin" / "openapi-python-client", "generate", "--path", document]
    made = run(*generate, "--output-path", package, "--meta", "none")
    left_out = set(re.findall(r"WARNING parsing (.+) within", made.stdout + made.stderr))
    assert left_out == FILES

    chosen = {"api_tenant_power": ("on", "off", "cycle")}
    with Site(tmp_path / "site", leaves=True, chosen=chosen) as site, HELD:
        given = {"url": site.url, "ca": str(tmp_path / "site/data/agent-ca.pem")}
        given |= {"tokens": site.tokens, "secret": SECRET, "password": PASSWORD}
        given |= {"newer": NEWER, "release": RELEASE, "earlier": EARLIER}
        about = tmp_path / "site.json"
        about.write_text(json.dumps(given), encoding="utf-8")
        with subprocess.Popen(
            [environment / "bin" / "python", JOBS, tmp_path, about],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as client:  # fmt: skip
            done = {job: ask(client, site, job, role) for job, role in [*list_jobs(), *BESIDE]}

    failed = {job: why for job, why in done.items() if isinstance(why, str)}
    assert failed == {}
    if os.environ.get("RECORD_GOLDEN"):
        rows = [(job, done[job]) for job, _ in list_jobs()]
        PAGE.write_text(replace_table(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    assert {job: done[job] for job, _ in list_jobs()} == read_table()


def ask(client: subprocess.Popen[str], site: Site, job: str, role: str) -> Any:
    """Make the job's world, let the client do the job; return its operations, or its failure."""
    assert client.stdin is not None
    assert client.stdout is not None
    given = WORLDS[job](site) if job in WORLDS else None
    client.stdin.write(json.dumps([job, role, given]) + "\n")
    client.stdin.flush()
    return json.loads(client.stdout.readline())
