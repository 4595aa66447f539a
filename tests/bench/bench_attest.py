"""How many reports of GPUs one core verifies: 10,000 of 512 devices; last line JSON.

The reports are re-made by the simulator, 64 measurements and a chain of four certificates each, and
every report has a nonce of its own. Making them is not counted. ARGS: reports, devices.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "attestation"))

from attested_devices import AT, TRUST, Question, chain_of, make_gpu

from provisioner.checks.attestation.certificate_chains import parse_certificates
from provisioner.checks.attestation.device_reports import Evidence, Expectation, verify_report
from provisioner.model.certificate import Verdict

LIMIT_S = 60.0  # for 10,000 on one core


def main(reports: int = 10_000, devices: int = 512) -> None:
    gpus = [make_gpu(f"{number:08X}") for number in range(devices)]
    chains = [chain_of(gpu.device) for gpu in gpus]
    manifests = Question().read_rims()
    spent_s, proved = 0.0, 0
    for number in range(reports):
        nonce = number.to_bytes(32, "big")
        raw, chain = gpus[number % devices].answer(nonce), chains[number % devices]
        began = time.process_time()
        expected = Expectation(nonce=nonce, at=AT, trust=TRUST, manifests=manifests)
        result = verify_report(Evidence(raw, parse_certificates(chain)), expected)
        spent_s += time.process_time() - began
        proved += result.verdict is Verdict.PROVED
    answer = {
        "reports": reports,
        "devices": devices,
        "proved": proved,
        "cpu_s": round(spent_s, 2),
        "ms_per_report": round(1000.0 * spent_s / reports, 3),
        "limit_s": LIMIT_S * reports / 10_000,
        "within_limit": spent_s <= LIMIT_S * reports / 10_000,
        "python": platform.python_version(),
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:3]))
