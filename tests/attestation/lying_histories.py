"""Random histories of a BMC that lies: no validation passes while one root of trust is not genuine.

The BMC carries the answers, so it may replay, swap, drop, delay and edit them; a root of trust with
other firmware shows the right version and signs its own measurements. 10,000 histories by `make
soak NAME=attest`, a share of them in every run of the tests; last line JSON.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from attested_devices import AUTHORITY, flip

from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.checks.attested_firmware import CHECK
from provisioner.checks.check import CheckContext
from provisioner.integrations.sim.hardware.simulated_tpm import SpdmResponder, make_values
from provisioner.model.cohort import Evidence, Verdict
from provisioner.model.matrix import AttestationRule, AttestedComponents, TrustedMaker

ROOTS = ("HGX_ERoT_BMC_0", "HGX_ERoT_GPU_SXM_1", "HGX_ERoT_GPU_SXM_2")
GENUINE, IMPLANT = make_values("pinned", 4), {**make_values("pinned", 4), 3: b"\xee" * 48}
DEVICES = {
    name: AUTHORITY.make_device("CEC173x EC", name.replace("_", "-"), None) for name in ROOTS
}
GOLDEN = {index: (value.hex(),) for index, value in GENUINE.items()}
RULE = AttestationRule(
    policy="require",
    components={
        "HGX_ERoT_BMC_*": AttestedComponents(count=1, digests=GOLDEN),
        "HGX_ERoT_GPU_SXM_*": AttestedComponents(count=2, digests=GOLDEN),
    },
    makers=(
        TrustedMaker(
            name=AUTHORITY.root_name,
            spki_sha256=digest_spki(AUTHORITY.root.certificate),
            source="the simulator",
        ),
    ),
)
CONTEXT = CheckContext(attestation=RULE)
TRICKS = ("honest", "replay", "other", "silent", "drop", "disabled", "edit", "other chain")


@dataclass
class LyingBmc:
    """A BMC with one hostile root behind it at some times; it keeps every answer for later."""

    rng: random.Random
    implanted: set[str] = field(default_factory=set)
    heard: dict[str, list[bytes]] = field(default_factory=dict)

    def step(self) -> None:
        """Something happens to the node: hostile firmware is written, or the pinned one."""
        name = self.rng.choice(ROOTS)
        if self.rng.random() < 0.5:
            self.implanted ^= {name}

    def answer(self, name: str, trick: str) -> dict[str, Any] | None:
        """Return the BMC's row for one root of trust; None if it is left out."""
        nonce = self.rng.randbytes(32)
        earlier = tuple(self.heard.get(name, ()))
        signed = self._sign(name, nonce)
        row = {"component": name, "nonce": nonce.hex(), "certificates": _chain(name)}
        if trick == "drop":
            return None
        if trick == "silent":
            return {"component": name, "nonce": nonce.hex(), "problem": "no answer"}
        if trick == "disabled":
            return {"component": name, "problem": "it is disabled"}
        if trick == "replay":
            signed = self.rng.choice(earlier or (self._sign(name, bytes(32)),))
        if trick == "other":
            name = self.rng.choice([n for n in ROOTS if n != name])
            signed = self._sign(name, nonce)
            row["certificates"] = _chain(name)
        if trick == "edit":
            signed = flip(signed, self.rng.randrange(len(signed)), 1 << self.rng.randrange(8))
        if trick == "other chain":
            row["certificates"] = _chain(self.rng.choice([n for n in ROOTS if n != name]))
        return {**row, "signed": base64.b64encode(signed).decode()}

    def _sign(self, name: str, nonce: bytes) -> bytes:
        values = IMPLANT if name in self.implanted else GENUINE
        signed = SpdmResponder(DEVICES[name], values).answer(nonce)
        self.heard.setdefault(name, []).append(signed)
        return signed


def _chain(name: str) -> str:
    return DEVICES[name].chain_pem


def judge(rows: list[dict[str, Any]]) -> Verdict:
    text = json.dumps({"asked_at": 1_795_305_600.0, "components": rows, "gaps": []})
    evidence = {"measurements": Evidence(source="bmc", exit_code=0, text=text)}
    return CHECK.judge(evidence, CONTEXT).verdict


def live(seed: int) -> tuple[int, int]:
    """Return how many validations of one history passed, and how many of them wrongly."""
    rng = random.Random(seed)
    bmc = LyingBmc(rng)
    passed = wrong = 0
    for _ in range(rng.randint(1, 4)):
        bmc.step()
        # a hostile BMC has a trick for the root that would betray it; sometimes it has none
        tricks = {
            name: rng.choice(TRICKS) if name in bmc.implanted or rng.random() < 0.1 else "honest"
            for name in ROOTS
        }
        rows = [row for name in ROOTS if (row := bmc.answer(name, tricks[name])) is not None]
        honest = not bmc.implanted and set(tricks.values()) == {"honest"}
        # genuine roots that answer under each other's names are genuine all the same
        excused = not bmc.implanted and set(tricks.values()) <= {"honest", "other"}
        if judge(rows) is Verdict.PASS:
            passed += 1
            wrong += not excused
        else:
            assert not honest, f"seed {seed}: an honest node was refused"
    return passed, wrong


def run(seeds: range) -> tuple[int, int]:
    results = [live(seed) for seed in seeds]
    return sum(p for p, _ in results), sum(w for _, w in results)


def main(histories: int = 10_000) -> int:
    """Print the figures as JSON; 0: an honest node passed, and none with other firmware did."""
    began = time.process_time()
    passed, wrong = run(range(histories))
    answer = {
        "histories": histories,
        "validations_passed": passed,
        "wrongly_passed": wrong,
        "cpu_s": round(time.process_time() - began, 1),
        "holds": passed > 0 and wrong == 0,
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["holds"] else 1


if __name__ == "__main__":
    sys.exit(main(*(int(text) for text in sys.argv[1:2])))
