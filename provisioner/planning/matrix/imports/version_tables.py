"""Read a table of versions as CSV: release notes, copied by a person into a spreadsheet.

Columns by their header: `component` and `version`, and where there are any `profile`, `file`,
`sha256` and `evidence`. Values are text as written; a version that a spreadsheet has turned into a
number is refused, because its digits are lost.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from provisioner.model.input_error import InputError
from provisioner.planning.matrix.imports.component_names import find_kind
from provisioner.planning.matrix.imports.statements import (
    STATEMENTS_MAX,
    Import,
    Statement,
    check_count,
    clean_file,
    clean_sha256,
    clean_text,
    clean_version,
)

SIZE_MAX = 4 * 1024 * 1024
COLUMNS = ("component", "version", "profile", "file", "sha256", "evidence")
_REMEDY = f"The first line names the columns: {', '.join(COLUMNS)}; the first two are needed."


def read_table(source: str, content: bytes, *, maps: Mapping[str, str]) -> Import:
    """Return the rows of a table. Raises InputError with the line."""
    if len(content) > SIZE_MAX:
        raise InputError(source, "", f"it is larger than {SIZE_MAX} bytes", "Split the table.")
    try:
        text = bytes(content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(source, "", "this is not UTF-8 text", "Save it as UTF-8.") from None
    first = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text), delimiter=";" if ";" in first else ",", strict=True)
    statements: list[Statement] = []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if not {"component", "version"} <= set(header) or len(set(header)) < len(header):
            raise InputError(source, "line 1", "the columns are not named", _REMEDY)
        for row in reader:
            if any(cell.strip() for cell in row):
                where = f"line {reader.line_num}"
                statements.append(_read_row(source, where, header, row, maps))
            if len(statements) > STATEMENTS_MAX:
                break
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise InputError(source, where, f"this is no CSV: {error}", _REMEDY) from None
    check_count(source, statements)
    notes = tuple(f"{s.name}: the table has no version" for s in statements if not s.version)
    stated = tuple(s for s in statements if s.version)
    return Import(source, "table", stated, notes=notes)


def _read_row(
    source: str, where: str, header: list[str], row: list[str], maps: Mapping[str, str]
) -> Statement:
    if len(row) > len(header):
        raise InputError(
            source, where, f"{len(row)} cells under {len(header)} columns", "Quote the commas."
        )
    cells = dict(zip(header, row, strict=False))
    name = clean_text(source, where, cells["component"])
    version = clean_version(source, where, cells.get("version", ""))
    return Statement(
        name=name,
        version=version,
        kind=find_kind(name, version, maps),
        file=clean_file(source, where, cells.get("file", "")),
        sha256=clean_sha256(source, where, cells.get("sha256", "")),
        evidence=clean_text(source, where, cells.get("evidence", "")),
        profile=clean_text(source, where, cells.get("profile", "")),
    )
