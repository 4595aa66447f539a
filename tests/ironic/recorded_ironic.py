"""Answers of a real Ironic 39.0.0, served again on loopback.

`answers.json` has them by path. It was recorded from Ironic as PyPI has it (standalone, no
authentication, redfish driver, see tests/bench/ironic_peer.py) with three hosts of the simulator:
one was inspected, named, lent to `red` and adopted there, one was put into maintenance, and one is
available. Of the inventories only the system's vendor is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from answering import serve_json

ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "answers.json").read_text())


@dataclass
class Served:
    """A running server. `answers` may be changed; `log` has (method, path, headers)."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(ANSWERS)))
    statuses: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of its only page."""
        return next(a["nodes"] for p, a in self.answers.items() if p.endswith("detail?limit=200"))


@contextmanager
def serve_ironic() -> Iterator[Served]:
    """Serve the recorded answers on loopback."""
    served = Served()

    def reply(method: str, target: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        served.log.append((method, target, dict(headers)))
        status = served.statuses.get(target, 200 if target in served.answers else 404)
        return status, served.answers.get(target, {"error_message": "-"})

    with serve_json(reply) as served.url:
        yield served
