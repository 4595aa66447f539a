"""Message ids of BMCs by what they mean (message_ids.csv), for reads and writes alike.

An id is "Registry.Major.Minor.Key", or a bare key. A row with registries is for those only: vendors
number their messages, and a number means nothing in another's registry. A row without is for any:
services print keys of DMTF's registries under names of their own.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from provisioner.model.base import Record
from provisioner.model.shipped_tables import read_table


class Meaning(StrEnum):
    """What an answer says about the request, or about the BMC."""

    NOT_READY = "not ready"  # asked again later; says nothing about what the BMC offers
    CHANGE_PASSWORD = "change the password"  # noqa: S105 (a meaning, no password)
    LOCKED = "locked"  # a lockdown, or an account that is held back
    LICENCE = "licence"
    PENDING_JOB = "pending job"  # another job or update has to end first
    REFUSED_PROPERTY = "refused property"
    NEEDS_RESET = "needs reset"  # taken; in force after a reset


class MessageRow(Record):
    """Keys of one meaning; `registry` and `keys` are expressions of the whole text."""

    meaning: Meaning
    keys: str
    source: str
    registry: str = ""  # Dell's has "" too: iDRAC sends bare numbers beside full ids
    says: str = ""  # the vendor's words, where a number stands for them


def _load() -> tuple[MessageRow, ...]:
    table = read_table("provisioner.quirks", "message_ids.csv")
    return tuple(MessageRow.model_validate(row) for row in table)


ROWS = _load()  # the first row that fits decides
_BOUND = 256


@lru_cache(maxsize=1024)  # a BMC says the same again and again, and there are some 30 rows
def find_meaning(message_id: str) -> Meaning | None:
    """Return what a message id means; None: no source tells."""
    if len(message_id) > _BOUND:
        return None
    registry, _, key = message_id.strip().rpartition(".")
    registry = registry.split(".", 1)[0]
    for row in ROWS:
        fits = not row.registry or re.fullmatch(row.registry, registry, re.IGNORECASE)
        if fits and re.fullmatch(row.keys, key, re.ASCII):
            return row.meaning
    return None
