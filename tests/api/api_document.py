"""The OpenAPI document as it is served: a second of CPU time, so one serves a whole process."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from provisioner.api import openapi, table


@cache
def _text() -> bytes:
    return openapi.write_document(table.ALL)


def read_document() -> Any:
    """Return the document, a copy of its own for each caller."""
    return json.loads(_text())
