"""The published thresholds (thresholds.csv): each figure's unit and direction, and a value with its
source for each GPU model.

A figure without a published value is None with `learned=True`, never a guess. It may be learned
from the fleet or set in a site's own file (docs/thresholds.md); until then nothing is judged by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.shipped_tables import read_table

ANY = "any"  # key of a value that holds for every GPU model
MODELS = ("H100", "H200", "B200")  # names by which a node's model is recognised (checks/context.py)


class Bound(StrEnum):
    """The good side of a threshold."""

    MIN = "at least"
    MAX = "at most"


class Limit(Record):
    """One value and its source. `value` is None where none is published; `learned`: it may be.

    A value that may be learned as well is coarse: a stricter one of the fleet replaces it.
    """

    value: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    source: str = Field(min_length=1, max_length=300)
    learned: bool = False


Limits = Mapping[str, Limit]  # by profile, GPU model or "any"; the first that exists applies


class Threshold(Record):
    """One figure that a check compares with a measured value."""

    unit: str
    bound: Bound
    about: str
    values: Mapping[str, Limit]


def _load() -> Mapping[str, Threshold]:
    values: dict[str, dict[str, Limit]] = {}
    figures: dict[str, dict[str, str]] = {}
    for row in read_table("provisioner.checks", "thresholds.csv"):
        figures.setdefault(row["name"], row)
        value = float(row["value"]) if row["value"] else None
        limit = Limit(value=value, source=row["source"], learned=row["learned"] == "yes")
        values.setdefault(row["name"], {})[row["profile"]] = limit
    return {
        name: Threshold(
            unit=row["unit"], bound=Bound(row["bound"]), about=row["about"], values=values[name]
        )
        for name, row in figures.items()
    }


THRESHOLDS = _load()
