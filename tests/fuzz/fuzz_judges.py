"""`make soak NAME=fuzz`: atheris on every judge and parser, guided by coverage. Argument: seconds.

The corpus is kept in var/fuzz, so that the next run goes on from there. A finding is written
beside it as crash-*; give such a file in place of the seconds to see it again.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

READERS = (
    "adapters.agent",
    "api",
    "checks",
    "execution",
    "planning",
    "integrations.playbooks",
    "adapters.redfish",
    "switches",
)
with atheris.instrument_imports(include=[f"provisioner.{name}" for name in READERS]):
    import attempts

KEPT = Path(__file__).parents[2] / "var" / "fuzz"
INPUT_BYTES_MAX = 20_000  # longer seeds are cut: garbage need not be long
DEFAULT_S = 600


def main() -> None:
    given = sys.argv[1] if len(sys.argv) > 1 else str(DEFAULT_S)
    corpus = KEPT / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in attempts.seeds():
        cut = seed[:INPUT_BYTES_MAX]
        (corpus / hashlib.sha256(cut).hexdigest()[:20]).write_bytes(cut)
    words = [sys.argv[0], f"-artifact_prefix={KEPT}/", "-timeout=20", "-rss_limit_mb=4096"]
    if given.isdecimal():
        words += [f"-max_total_time={given}", f"-max_len={INPUT_BYTES_MAX}", str(corpus)]
    else:
        words.append(given)
    atheris.Setup(words, attempts.attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
