"""Examples of answers in the OpenAPI document, by the record that they show.

They are answers of the simulated site (`tests/api/test_api_examples.py` records them), and each has
the form of its schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "examples.json"


@cache
def read_examples() -> Mapping[str, Any]:
    """Return the example of each record by its name."""
    examples: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return examples
