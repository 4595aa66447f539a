"""NVIDIA's acceptance suite, its part bare_metal, against OpenStack Ironic alone.

    acceptance_ironic.py --suite DIR --python PYTHON [--peer VENV] [--result FILE]

Ironic from PyPI takes hosts of `provisioner sim serve` over HTTPS by its Redfish driver. What its
operator enters is here: racks as chassis, one class of resources, and, of the last host, a wrong
path at first, which is corrected after Ironic has recorded the failure. The answers to the suite
are in docs/examples/acceptance/ironic. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ironic_peer import PINS, install
from ironic_peer import Ironic as Process

from provisioner.integrations.demo import running

ACCEPTANCE = Path(__file__).parents[2] / "docs" / "examples" / "acceptance"
PROVIDER = ACCEPTANCE / "ironic"
sys.path[:0] = [str(PROVIDER), str(ACCEPTANCE)]

from guest_host import read_last_lines  # noqa: E402
from ironic_client import Ironic, RefusedError  # noqa: E402
from reasons import NO_RAMDISK, NO_SYSTEM, REASONS  # noqa: E402
from run import read_version  # noqa: E402
from verdicts import UNWIRED, list_checks, read_cases  # noqa: E402

PORT = 16392
HOSTS = 4
SYSTEM = "/redfish/v1/Systems/1"
WRONG = "/redfish/v1/Systems/none"
SUITE = "bare_metal"
LIMIT_S = 1200
HOST_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ROUNDS = 40  # of its password hash, as before 35.0.0: it costs time and changes no answer
# the default is 120 s; the health of a node comes with its power
SETTINGS = "[conductor]\nsync_power_state_interval = 20\n"


def enrol(ironic: Ironic, endpoints: dict[str, str], expected: dict[str, Any]) -> list[str]:
    """Enter, inspect and offer each host. Return the serials that were ordered."""
    login = expected["factory_credentials"]["supermicro"]
    hosts = [node for node in expected["nodes"] if node["kind"] == "host"]
    racks = sorted({host["location"]["rack"] for host in hosts})
    chassis = {rack: ironic.send("POST", "/chassis", {"description": rack}) for rack in racks}
    for number, host in enumerate(hosts):
        name = f"host-{number}"
        last = host is hosts[-1]
        info = {
            "redfish_address": endpoints[f"{host['name']}/host"],
            "redfish_system_id": WRONG if last else SYSTEM,
            "redfish_username": login["username"],
            "redfish_password": login["password"],
            "redfish_verify_ca": False,
        }
        rack = chassis[host["location"]["rack"]]["uuid"]
        body = {"name": name, "driver": "redfish", "driver_info": info, "chassis_uuid": rack}
        ironic.send("POST", "/nodes", {**body, "resource_class": "hgx"})
        if last:
            try:
                ironic.move(name, "manage", "manageable")
                raise RuntimeError("Ironic managed a host at a wrong path")
            except RefusedError:
                ironic.patch(name, **{"driver_info/redfish_system_id": SYSTEM})
        ironic.move(name, "manage", "manageable")
        ironic.move(name, "inspect", "manageable")
        ironic.move(name, "provide", "available")
    for number in range(len(hosts)):
        ironic.wait(f"host-{number}", lambda node: node["health"] is not None)
    return [host["bmc"]["serial"] for host in hosts]


def run_suite(suite: Path, python: Path, out: Path) -> Path:
    """Run the suite's own runner and return its JUnit file."""
    text = (PROVIDER / f"{SUITE}.yaml").read_text(encoding="utf-8")
    configuration = out / f"{SUITE}.yaml"
    configuration.write_text(text.replace("SUITE", str(suite)).replace("HERE", str(PROVIDER)))
    environment = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "IRONIC_API": f"http://127.0.0.1:{PORT}",
        "IRONIC_EVIDENCE": str(out / "evidence"),
        "IRONIC_MANIFEST": str(out / "manifest.json"),
    }
    environment.pop("PYTHONPATH", None)
    junit = out / "junit.xml"
    words = ["-m", "isvctl.main", "test", "run", "-f", str(configuration), "--no-upload"]
    said = out / "suite.log"
    with said.open("wb") as log, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [str(python), *words, "--junitxml", str(junit)],
            env=environment,
            cwd=out,
            stdout=log,
            stderr=log,
            timeout=LIMIT_S,
            check=False,  # it ends with 1 if any check failed
        )
    if not junit.exists():
        sys.exit(f"error: the suite came to no result{read_last_lines(said)}")
    return junit


def read_power(evidence: Path) -> str | None:
    """Return the state of the power that a step read last."""
    last = json.loads(evidence.read_text(encoding="utf-8").splitlines()[-1])
    return last["answer"].get("power_state") if last["status"] == 200 else None


def judge(suite: Path, junit: Path) -> dict[str, dict[str, str]]:
    """Return the verdict of each id: that of the worst of its checks."""
    cases = read_cases(junit)
    order = ("failed", "skipped", "passed")
    verdicts: dict[str, dict[str, str]] = {}
    for check, fields in list_checks(suite, SUITE).items():
        test_id = fields.get("test_id", UNWIRED)
        if test_id == UNWIRED:
            continue
        state, message = cases.get(check, ("skipped", ""))
        if state == "skipped":
            message = REASONS.get(check) or REASONS.get(fields["step"], message)
            evidence = junit.parent / "evidence" / f"{fields['step']}.jsonl"
            if message == NO_SYSTEM and read_power(evidence) != "power on":
                state = "failed"
                message = "the power was not on at the end of the step"
            if message == NO_RAMDISK and "gpu" in fields.get("labels", ()):
                message = REASONS["deploy_nim"]
        elif state == "passed":
            message = ""
        text = HOST_ID.sub("a host", " ".join(message.split()))[:300]
        verdict = {"state": state, "message": text}
        worst = verdicts.setdefault(test_id, verdict)
        if order.index(state) < order.index(worst["state"]):
            verdicts[test_id] = verdict
    return dict(sorted(verdicts.items()))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Start all, run the suite, and return the result."""
    out = options.out.resolve()
    out.mkdir(parents=True)
    install(options.peer)
    process = Process(options.peer, out / "ironic", PORT, ROUNDS, SETTINGS)
    async with running.run_simulator(running.Asked(nodes=HOSTS, speed=20.0), out / "site") as site:
        endpoints, expected = await site.get("/endpoints"), await site.get("/expected")

        def work() -> Path:
            try:
                process.start()
                ironic = Ironic(f"http://127.0.0.1:{PORT}", out / "enrolment.jsonl")
                serials = enrol(ironic, endpoints, expected)
                (out / "manifest.json").write_text(json.dumps(serials), encoding="utf-8")
                return run_suite(options.suite.resolve(), options.python.absolute(), out)
            finally:
                process.stop()

        junit = await asyncio.to_thread(work)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "suite_version": read_version(options.suite),
        "packages": list(PINS),
        "hosts": HOSTS,
        "verdicts": judge(options.suite, junit),
    }


def main() -> int:
    """Write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", type=Path, required=True, help="folder with the suite")
    parser.add_argument("--python", type=Path, required=True, help="Python with its packages")
    parser.add_argument("--out", type=Path, default=Path("build/acceptance-ironic"), help="new one")
    parser.add_argument("--peer", type=Path, default=Path.home() / ".cache" / "ironic-peer")
    parser.add_argument("--result", type=Path, help="file to write the result to")
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    if options.result is not None:
        options.result.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(result["verdicts"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
