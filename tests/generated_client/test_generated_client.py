"""A Python client that others' generator makes of our OpenAPI document does the daily jobs.

The generator is openapi-python-client from PyPI, by digest, in an environment of its own; the
client is what it writes, unchanged, with our own types nowhere near.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from api_document import read_document
from served import NOW, RATES
from served_tls import serving_tls

from provisioner.model.times.instant import format_instant

HERE = Path(__file__).parent
JOBS = HERE / "daily_jobs.py"
DOCUMENT = read_document()
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


def test_operations_of_the_jobs_are_operations_of_the_api():
    named = set(re.findall(r'ask\(\s*"(\w+)"', JOBS.read_text(encoding="utf-8")))
    operations = {
        operation["operationId"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
    }

    assert named - operations == set()
    assert len(named) > 30


def test_every_schema_has_a_name_and_a_title_of_its_own():
    """A generator makes one class of two schemas with one title, and drops what differs."""
    schemas = DOCUMENT["components"]["schemas"]

    assert [name for name in schemas if "__" in name] == []
    assert {name: s["title"] for name, s in schemas.items()} == {name: name for name in schemas}


@pytest.mark.long
def test_a_generated_client_does_the_daily_jobs(environment: Path, tmp_path: Path):
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    package = tmp_path / "provisioner_client"
    generate = [environment / "bin" / "openapi-python-client", "generate", "--path", document]
    made = run(*generate, "--output-path", package, "--meta", "none")
    left_out = set(re.findall(r"WARNING parsing (.+) within", made.stdout + made.stderr))
    assert left_out == FILES

    async def scenario() -> dict[str, Any]:
        settings = dict.fromkeys(RATES, 1_000_000) | {"api_four_eyes": ["alert.clear"]}
        async with serving_tls(tmp_path, **settings) as (served, address):
            site = tmp_path / "site.json"
            secret = "whsec_" + base64.b64encode(b"0" * 32).decode()
            given = {"url": address.url, "ca": str(address.ca), "tokens": served.tokens}
            given |= {"secret": secret, "until": format_instant(NOW + 3600)}
            site.write_text(json.dumps(given), encoding="utf-8")
            python = environment / "bin" / "python"
            ran = await asyncio.to_thread(run, python, JOBS, tmp_path, site)
            return json.loads(ran.stdout.splitlines()[-1])

    done = asyncio.run(scenario())

    assert {job: why for job, why in done.items() if isinstance(why, str)} == {}
    assert len(done) > 25
    assert len({name for names in done.values() for name in names}) > 40
