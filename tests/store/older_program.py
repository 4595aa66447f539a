"""One step of an upgrade and its way back, by the older program.

    python older_program.py STEP DATABASE DIRECTORY

It is this tree, whose newest migration is the older schema; the newer program is the caller.
`live` writes a database as a daemon leaves it that dies with work under way; `refused` prints why
the database is not opened; `goes_on` prints why a daemon would only look, then drives the work.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from test_live_upgrade import check_goes_on, live

from provisioner.daemon.recovery import counted_writes
from provisioner.model.input_error import InputError
from provisioner.store import open_store


def end(why: str) -> None:
    raise RuntimeError(why)


async def play(step: str, database: str, directory: Path) -> str:
    """The step's answer."""
    try:
        store = open_store(database if "://" in database else Path(database))
    except InputError as error:
        return str(error)
    try:
        async with counted_writes(directory, store, time.time(), end) as counted:
            if step == "live":
                await live(store)
            elif step == "goes_on":
                await check_goes_on(store, {"alerts", "cases"})
            return counted.look_only
    finally:
        await store.close()


def main() -> None:
    step, database, directory = sys.argv[1:]  # fmt: skip
    sys.stdout.write(asyncio.run(play(step, database, Path(directory))))


if __name__ == "__main__":
    main()
