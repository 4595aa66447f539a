"""Following an operation of the API until it is over, with what it does on the terminal."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.text import Text

from provisioner.adapters.api_client import Answer, ApiClient
from provisioner.api.route import PREFIX

LOOK_S = 1.0  # between two looks; grows to LOOK_MAX_S for what takes hours
LOOK_MAX_S = 10.0


async def followed(reach: ApiClient, answer: Answer) -> Answer:
    """The operation's last answer. What waits for another person is not waited for."""
    place = answer.location
    if not place.startswith(f"{PREFIX}/operations/"):
        return answer
    wait_s = LOOK_S
    with Console(stderr=True).status(Text(_words(answer)), spinner="dots") as status:
        while answer.good and _state(answer) == "running":
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LOOK_MAX_S)
            found = await reach.ask("GET", place)
            answer = Answer(found.status, found.document, found.content, place, found.etag)
            status.update(Text(_words(answer)))
    return answer


def _state(answer: Answer) -> str:
    document = answer.document
    return str(document.get("state", "")) if isinstance(document, dict) else ""


def _words(answer: Answer) -> str:
    document = answer.document if isinstance(answer.document, dict) else {}
    parts = (str(document.get(name, "")) for name in ("id", "kind", "subject", "state", "note"))
    return " ".join(part for part in parts if part)
