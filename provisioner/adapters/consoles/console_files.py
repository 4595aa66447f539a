"""`ConsoleBook` in files: a folder for each node, a file of lines for each day.

Lines of 30 days of a whole fleet do not belong into the database of decisions: a day's file is
appended to, read from its end, and removed whole. The name of a node is encoded: it is no path.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from provisioner.model.integrations.audit_export import ConsoleLine
from provisioner.runtime.whole_files import replace_file

DAY_S = 86400.0
FOLDER = "consoles"  # in the data directory


class ConsoleFiles:
    """`bytes_max`: of all files of one node; the oldest day goes first."""

    def __init__(self, directory: Path, bytes_max: int, folder: str = FOLDER) -> None:
        self._directory = directory / folder
        self._bytes_max = bytes_max
        self._next: dict[str, int] = {}  # node -> number of its next line

    async def append(self, node: str, lines: Sequence[str], at: float) -> None:
        """Write lines, which were received at one time, to the end of the day's file."""
        if lines:
            await asyncio.to_thread(self._append, node, lines, at)

    async def list_lines(self, node: str, after: int, most: int) -> Sequence[ConsoleLine]:
        """Return the lines after a number; for `after` -1 the last ones."""
        return await asyncio.to_thread(self._list, node, after, most)

    async def prune(self, before: float) -> None:
        """Remove the files of days that ended before a time."""
        await asyncio.to_thread(self._prune, before)

    def _folder(self, node: str) -> Path:
        return self._directory / quote(node, safe="").replace(".", "%2E")

    def _append(self, node: str, lines: Sequence[str], at: float) -> None:
        folder = self._folder(node)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if node not in self._next:
            last = self._list(node, -1, 1)
            self._next[node] = last[-1].seq + 1 if last else 0
        first = self._next[node]
        rows = [json.dumps([first + n, round(at, 3), text]) + "\n" for n, text in enumerate(lines)]
        file = folder / f"{int(at // DAY_S)}.jsonl"
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as day:
            day.writelines(rows)
        self._next[node] = first + len(rows)
        self._shrink(folder, file)

    def _shrink(self, folder: Path, current: Path) -> None:
        """Remove the oldest days over the limit; of one day alone its first half."""
        days = _days(folder)
        sizes = {day: day.stat().st_size for day in days}
        while sum(sizes.values()) > self._bytes_max and len(sizes) > 1:
            oldest = days.pop(0)
            del sizes[oldest]
            oldest.unlink()
        if sum(sizes.values()) > self._bytes_max:
            rows = current.read_text(encoding="utf-8").splitlines(keepends=True)
            replace_file(current, "".join(rows[len(rows) // 2 :]))

    def _list(self, node: str, after: int, most: int) -> list[ConsoleLine]:
        lines: list[ConsoleLine] = []
        for day in reversed(_days(self._folder(node))):
            rows = list(_read(day))
            if after < 0:
                lines = rows[-(most - len(lines)) :] + lines
                if len(lines) >= most:
                    break
            else:
                lines = [row for row in rows if row.seq > after] + lines
                if rows and rows[0].seq <= after:
                    break
        return lines[-most:] if after < 0 else lines[:most]

    def _prune(self, before: float) -> None:
        if not self._directory.is_dir():
            return
        for folder in self._directory.iterdir():
            for day in _days(folder):
                if (int(day.stem) + 1) * DAY_S <= before:
                    day.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()


def _days(folder: Path) -> list[Path]:
    """Return the files of a node, the oldest first."""
    if not folder.is_dir():
        return []
    days = [f for f in folder.glob("*.jsonl") if f.stem.isdigit()]
    return sorted(days, key=lambda f: int(f.stem))


def _read(day: Path) -> Iterator[ConsoleLine]:
    """Yield the lines of a day; one that a crash cut off is left out."""
    for row in day.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            seq, at, text = json.loads(row)
            yield ConsoleLine(seq=int(seq), at=float(at), text=str(text))
        except (ValueError, TypeError):
            continue
