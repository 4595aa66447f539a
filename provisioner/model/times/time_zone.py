"""Time zones by their IANA names, from the data that is installed with the program.

The system's own zone files are not read: two daemons, or one daemon before and after an upgrade of
the system, would otherwise open the same change window at different times. `DATA_VERSION` names
the edition of the data, and is kept with each campaign whose windows name a zone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from tzdata import IANA_VERSION as DATA_VERSION

__all__ = ["DATA_VERSION", "read_zone"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(?:/[A-Za-z][A-Za-z0-9_+-]{0,30}){0,2}")


@lru_cache(maxsize=1024)  # there are some 600 names
def read_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name such as `Europe/Berlin`; raise ValueError for other
    names.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:40]!r} is not the name of a time zone")
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not file.is_file():
        raise ValueError(f"there is no time zone {name!r} in the IANA data {DATA_VERSION}")
    with file.open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)
