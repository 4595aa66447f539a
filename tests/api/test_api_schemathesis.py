"""schemathesis derives requests from our document and finds what the server answers beyond it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from api_document import read_document
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance
from served import WIDE, serving

# requests of each route and way: some 400 in all, and 2,000 in the long tests
EXAMPLES = (2, pytest.param(10, marks=pytest.mark.long))
# endless, and files of the page: tests of their own
LEFT_OUT = ("stream_events", "show_docs_file")

# what a schema cannot say (whether a name exists, what a cursor means) is refused, and documented
NOT_ASKED = [positive_data_acceptance]


class Background:
    """The API in a thread of its own, as schemathesis asks from the test's thread."""

    def __init__(self) -> None:
        self.ready, self.stop = threading.Event(), asyncio.Event()
        self.loop = asyncio.new_event_loop()
        self.url, self.tokens = "", dict[str, str]()
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        async def run() -> None:
            async with serving(**WIDE) as served:
                self.url = str(served.client.make_url("")).rstrip("/")
                self.tokens = served.tokens
                self.ready.set()
                await self.stop.wait()

        self.loop.run_until_complete(run())

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(timeout=30)
        self.loop.close()


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    server = Background()
    server.thread.start()
    try:
        assert server.ready.wait(timeout=30)
        yield server
    finally:
        server.close()


# schemathesis' own answers to wrong requests, and 413: a field may be too long for any body
REJECTED = [
    "400",
    "401",
    "403",
    "404",
    "405",
    "406",
    "409",
    "413",
    "415",
    "422",
    "428",
    "429",
    "5xx",
]
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": REJECTED}}}
)
DOCUMENT = schemathesis.openapi.from_dict(read_document(), config=CONFIG)
OPERATIONS = [
    found
    for result in DOCUMENT.get_all_operations()
    if (found := result.ok()).definition.raw["operationId"] not in LEFT_OUT
]


# what the document allows; and what it does not, where there is a body to be wrong
WAYS = [(o, GenerationMode.POSITIVE) for o in OPERATIONS]
WAYS += [(o, GenerationMode.NEGATIVE) for o in OPERATIONS if "requestBody" in o.definition.raw]


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("operation", "mode"), WAYS, ids=lambda w: getattr(w, "label", str(w)))
def test_no_answer_is_undocumented_and_none_is_a_server_error(
    operation, mode, examples, background
):
    roles = operation.definition.raw["x-roles"]
    who = next((r for r in ("operator", "viewer", "approver") if r in roles), "viewer")
    key = {"Authorization": f"Bearer {background.tokens[who]}"}
    # a token that is garbled on purpose is replaced by a good one: nothing would be wrong
    chosen = {} if mode is GenerationMode.POSITIVE else {"headers": {}}

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode, **chosen))
    def every_case(case):
        case.call_and_validate(base_url=background.url, headers=key, excluded_checks=NOT_ASKED)

    every_case()
