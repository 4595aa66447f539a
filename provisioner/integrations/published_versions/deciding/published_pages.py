"""Read published tables of versions: saved pages, text of PDFs, and repositories' YAML. Pure.

A table is used only where its headings say which column is the component and which the version.
What could be read in two ways is refused with its row: merged cells, footnotes, two values in a
cell, headings that are not known, and names that are near a known component. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

from provisioner.integrations.published_versions.deciding.statements import (
    STATEMENTS_MAX,
    Import,
    Statement,
    clean_text,
    clean_version,
    find_kind,
)
from provisioner.model.input_error import InputError
from provisioner.planning.matrix.located_yaml import Tree, load

PAGE_BYTES_MAX = 8 * 1024 * 1024  # NVIDIA's longest page of this kind has some 400 KB
CELLS_MAX = 50_000
COMPONENT_HEADINGS = frozenset(
    {"component", "components", "adapter card", "adapter cards", "product", "item"}
)
VERSION_HEADINGS = frozenset(
    {"version", "versions", "firmware version", "firmware versions", "bundled firmware version"}
)
_REMEDY = "Save the page unchanged, or write the rows as a CSV with `component` and `version`."
_FOOTNOTE = re.compile(r"[*\u2020\u2021\u00b9\u00b2\u00b3]|\[\d+\]|\(\d\)$|\^\d")
_VALUE = re.compile(r"(?<![\w.])[A-Za-z]*[-_]?\d+[\w+-]*(?:\.[\w+-]+)+")
# words of components that this program manages: a name with one of them that is no known name and
# no other product has been renamed, or is new
_OURS = re.compile(
    r"connectx|bluefield|\bbmc\b|e?rot\b|gpu|driver|nvswitch|doca.?host|cumulus|\bhmc\b|fpga|cpld"
    r"|\bbios\b|nccl|fabric.?manager|\bcx\d|\bbf\d",
    re.IGNORECASE,
)
# products beside ours in the same tables, and parts of which no inventory shows the version
_OTHERS = re.compile(
    r"connectx-?[3-6]\b.*|connectx-9|bluefield(-2.*)?|bluefield-2 .*|bluefield-3 fw bundle|.*switch"
    r"|gpu sku|sbios|smr|cx8 sma|imex|mft( tools)?|winof-2|kernel module source|host os|cuda"
    r"|(delta|delts|liteon) .*|nvos|bluefield-[34] (?:arm|os|dpu os) .*",
    re.IGNORECASE,
)


class Cell(NamedTuple):
    text: str
    is_merged: bool = False
    has_footnote: bool = False


class PageTable(NamedTuple):
    """One table: the heading above it, the number of its first row, and its rows."""

    heading: str
    rows: tuple[tuple[Cell, ...], ...]
    first: int = 1


class Choice(NamedTuple):
    """The part of a page that a person names: a text of the heading, and a column."""

    section: str = ""
    column: str = ""


def read_page(
    source: str, content: bytes, *, maps: Mapping[str, str], choice: Choice | None = None
) -> Import:
    """Return the versions of a page's tables. Raises InputError with the row."""
    text = _decode(source, content)
    if source.lower().endswith((".yaml", ".yml")):
        return _read_repository_yaml(source, text, choice or Choice())
    is_html = source.lower().endswith((".html", ".htm")) or "<table" in text[:PAGE_BYTES_MAX]
    tables = tuple(_read_html(source, text) if is_html else _read_text(text))
    if sum(len(row) for table in tables for row in table.rows) > CELLS_MAX:
        raise InputError(source, "", f"it has more than {CELLS_MAX} cells", "Save one page alone.")
    return _read_tables(source, tables, maps, choice or Choice())


def _decode(source: str, content: bytes) -> str:
    if len(content) > PAGE_BYTES_MAX:
        raise InputError(source, "", f"it is larger than {PAGE_BYTES_MAX} bytes", _REMEDY)
    try:
        return bytes(content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(source, "", "this is not UTF-8 text", "Save it as UTF-8.") from None


# ------------------------------------------------------------------------------
# Tables to statements.


def _read_tables(
    source: str, tables: Sequence[PageTable], maps: Mapping[str, str], choice: Choice
) -> Import:
    statements: list[Statement] = []
    headings: list[str] = []
    passed: list[str] = []
    for table in tables:
        if choice.section.casefold() not in table.heading.casefold():
            continue
        columns = _find_columns(source, table, choice)
        if columns is None:
            headings += [" | ".join(cell.text for cell in row) for row in table.rows[:1]]
            continue
        for number, row in enumerate(table.rows[1:], start=table.first + 1):
            where = f"'{table.heading[:60]}', row {number}" if table.heading else f"row {number}"
            stated = _read_row(source, where, row, columns, maps)
            if stated is None:
                passed += [row[columns[0]].text] if len(row) > columns[0] else []
            else:
                statements.append(stated)
            if len(statements) > STATEMENTS_MAX:
                problem = f"it states more than {STATEMENTS_MAX} versions"
                raise InputError(source, where, problem, "Name a part of it with --section.")
    if not statements:
        known = f"{', '.join(sorted(COMPONENT_HEADINGS))}; {', '.join(sorted(VERSION_HEADINGS))}"
        seen = "; ".join(h[:80] for h in headings[:4]) or "no table"
        problem = f"no table has the headings of components and versions ({seen})"
        remedy = f"Known are: {known}. Or write the rows as a CSV."
        raise InputError(source, choice.section, problem, remedy)
    notes = (f"not of this program's components: {', '.join(passed[:20])}",) if passed else ()
    return Import(source, "published tables", tuple(statements), notes=notes)


def _find_columns(source: str, table: PageTable, choice: Choice) -> tuple[int, int] | None:
    """Return the places of component and version, None where it is another table."""
    if not table.rows:
        return None
    head = [cell.text.strip().casefold() for cell in table.rows[0]]
    names = [n for n, text in enumerate(head) if text in COMPONENT_HEADINGS]
    if not names:
        return None
    if any(cell.is_merged for cell in table.rows[0]):
        where = f"'{table.heading[:60]}', row {table.first}"
        raise InputError(source, where, f"merged headings: {_show(table.rows[0])}", _REMEDY)
    wanted = [n for n, text in enumerate(head) if text in VERSION_HEADINGS]
    if choice.column:
        wanted = [n for n, text in enumerate(head) if text == choice.column.casefold()]
    if len(names) == 1 and len(wanted) == 1 and names != wanted:
        return names[0], wanted[0]
    if choice.column or len(wanted) > 1 or len(head) > 2:
        problem = f"which column has the version is not certain: {_show(table.rows[0])}"
        where = f"'{table.heading[:60]}', row {table.first}"
        raise InputError(source, where, problem, "Name it with --column.")
    return None


def _read_row(
    source: str,
    where: str,
    row: Sequence[Cell],
    columns: tuple[int, int],
    maps: Mapping[str, str],
) -> Statement | None:
    """Return what a row states, None for another product or a row without a version."""
    if any(cell.is_merged for cell in row):
        raise InputError(source, where, f"merged cells: {_show(row)}", _REMEDY)
    if len(row) <= max(columns):
        if not any(cell.text.strip() for cell in row):
            return None
        raise InputError(source, where, f"a cell is missing: {_show(row)}", _REMEDY)
    cell = row[columns[1]]
    name = clean_text(source, where, _ascii(row[columns[0]].text))
    version_text = _ascii(cell.text)
    kind = find_kind(name, version_text, maps)
    if not kind:
        if _OURS.search(name) and not _OTHERS.fullmatch(name):
            problem = f"'{name}' is near a known component and is none: {_show(row)}"
            raise InputError(source, where, problem, f"Say what it is: --map '{name}=KIND'.")
        return None
    if row[columns[0]].has_footnote or cell.has_footnote or _FOOTNOTE.search(cell.text):
        problem = f"a footnote may change the version: {_show(row)}"
        raise InputError(source, where, problem, "Read the note, and write the row as a CSV.")
    if len(_VALUE.findall(version_text)) > 1 or re.search(r"\d\s*/\s*\d|\bor\b", version_text):
        problem = f"two values in one cell: {_show(row)}"
        raise InputError(source, where, problem, "Decide which holds, and write a CSV.")
    version = clean_version(source, where, version_text)
    if not version:
        return None
    return Statement(name, version, kind, row=f"{where}: {_show(row)}"[:200])


def _ascii(text: str) -> str:
    """Return a text without the marks of trade names, in ASCII where that loses nothing."""
    plain = text.replace("\u00ae", "").replace("\u2122", "").replace("\u2011", "-")
    return " ".join(plain.replace("\u2010", "-").replace("\xa0", " ").split())


def _show(row: Sequence[Cell]) -> str:
    text = " | ".join(" ".join(cell.text.split())[:60] for cell in row)
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:160]


# ------------------------------------------------------------------------------
# Tables of HTML.


class _Reader(HTMLParser):
    """Collects tables with the heading above each; a table inside a cell counts as text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[PageTable] = []
        self.heading = ""
        self._in_heading = False
        self._depth = 0
        self._rows: list[tuple[Cell, ...]] = []
        self._row: list[Cell] | None = None
        self._cell: list[str] | None = None
        self._merged = False
        self._note = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if re.fullmatch(r"h[1-6]|caption", tag):
            self.heading = ""
            self._in_heading = True
        elif tag == "table":
            self._depth += 1
            if self._depth == 1:
                self._rows = []
        elif self._depth == 1 and tag == "tr":
            self._end_row()
            self._row = []
        elif self._depth == 1 and tag in ("td", "th"):
            self._end_cell()
            spans = [v for name, v in attrs if name in ("colspan", "rowspan")]
            self._cell = []
            self._merged = any(v not in (None, "", "1") for v in spans)
            self._note = False
        elif tag == "sup" and self._cell is not None:
            self._note = True
        elif tag in ("br", "p", "li", "div") and self._cell:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if re.fullmatch(r"h[1-6]|caption", tag):
            self._in_heading = False
        elif tag == "table" and self._depth:
            self._depth -= 1
            if self._depth == 0:
                self._end_row()
                self.tables.append(PageTable(" ".join(self.heading.split()), tuple(self._rows)))
        elif self._depth == 1 and tag == "tr":
            self._end_row()
        elif self._depth == 1 and tag in ("td", "th"):
            self._end_cell()

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.heading += data.replace("#", "").replace("\xb6", "")
        elif self._cell is not None:
            self._cell.append(data)

    def _end_cell(self) -> None:
        if self._cell is not None and self._row is not None:
            text = " ".join("".join(self._cell).split())
            self._row.append(Cell(text, self._merged, self._note))
        self._cell = None

    def _end_row(self) -> None:
        self._end_cell()
        if self._row:
            self._rows.append(tuple(self._row))
        self._row = None


def _read_html(source: str, text: str) -> Iterator[PageTable]:
    reader = _Reader()
    try:
        reader.feed(text)
        reader.close()
    except (AssertionError, ValueError):  # the parser's answers to declarations that do not end
        raise InputError(source, "", "this is no HTML", _REMEDY) from None
    yield from reader.tables


# ------------------------------------------------------------------------------
# Tables of text: with bars (Markdown, saved pages), lists of reStructuredText, and PDFs as text.

_RULE = re.compile(r"[\s|:+=-]+")


def _read_text(text: str) -> Iterator[PageTable]:
    heading = ""
    rows: list[tuple[Cell, ...]] = []
    first = 1
    lines = text.splitlines()
    for number, line in enumerate([*lines, ""], start=1):
        row = _split_line(line)
        if row is not None:
            if not rows:
                first = number
            # a row of one cell goes on with a rule that divides it otherwise: a merged cell
            if rows and len(row) != len(rows[0]) and "|" in line:
                row = tuple(cell._replace(is_merged=True) for cell in row)
            rows.append(row)
        elif _RULE.fullmatch(line) and line.strip():
            continue
        elif rows:
            yield PageTable(heading, tuple(rows), first)
            rows = []
        if row is None and line.strip() and not _RULE.fullmatch(line):
            heading = line.strip().strip("#").strip()
    yield from _read_list_tables(lines)


def _split_line(line: str) -> tuple[Cell, ...] | None:
    if _RULE.fullmatch(line) or not line.strip():
        return None
    if line.count("|") >= 1:
        return tuple(Cell(part.strip()) for part in line.strip().strip("|").split("|"))
    parts = re.split(r"\s{2,}|\t", line.strip())
    return tuple(Cell(part) for part in parts) if len(parts) > 1 else None


def _read_list_tables(lines: Sequence[str]) -> Iterator[PageTable]:
    """Yield the `list-table`s of reStructuredText."""
    heading = ""
    above = ""
    rows: list[list[Cell]] = []
    first = 0
    for number, line in enumerate([*lines, "end"], start=1):
        start = re.match(r"\s*\* - ?(.*)", line)
        more = re.match(r"\s+- ?(.*)", line)
        if start:
            first = first or number
            rows.append([Cell(start[1].strip())])
        elif more and rows:
            rows[-1].append(Cell(more[1].strip()))
        elif line.strip() and not line.startswith(" "):
            if rows:
                yield PageTable(heading, tuple(map(tuple, rows)), first)
                rows = []
                first = 0
            if re.fullmatch(r"[\"'=~^-]{3,}", line.strip()):
                heading = above
            above = line.strip()


# ------------------------------------------------------------------------------
# YAML of repositories: the network operator's map of firmware, and Spectrum-X profiles.
#
# Source: github.com/Mellanox/network-operator, supported-nic-firmware ConfigMap: key
# "Nvidia_mlx5_ConnectX-7-26.04", value "1021 26.04-0.8.6 28.49.1014" (device, driver, firmware);
# github.com/Mellanox/nic-configuration-operator, bindata/spectrum-x: `docaCCVersion`.

_MAPPED = re.compile(r"Nvidia_mlx5_(?:MT\d+_)?(?P<name>.+)-(?P<train>\d\d\.\d\d)")
_DEVICES = {"1021": "nic.cx7", "1023": "nic.cx8", "a2dc": "bluefield.nic"}


def _read_repository_yaml(source: str, text: str, choice: Choice) -> Import:
    # the operator's file is a template: braces stand where a name is filled in
    tree = load(source, re.sub(r"\{\{.*?\}\}", "template", text)).tree
    data = tree.get("data") if isinstance(tree, dict) else None
    version = tree.get("docaCCVersion") if isinstance(tree, dict) else None
    statements: list[Statement] = []
    if isinstance(version, str):
        clean = clean_version(source, "docaCCVersion", version)
        statements.append(Statement("docaCCVersion", clean, "host.spcx_cc", row="docaCCVersion"))
    for key, value in data.items() if isinstance(data, dict) else ():
        statements += _read_mapped(source, key, value, choice.section)
    if not statements:
        remedy = "It has docaCCVersion, or data with the operator's keys Nvidia_mlx5_..."
        raise InputError(source, choice.section, "it states no version of a component", remedy)
    return Import(source, "repository YAML", tuple(statements))


def _read_mapped(source: str, key: str, value: Tree, section: str) -> list[Statement]:
    match = _MAPPED.fullmatch(key)
    if match is None or section not in match["train"]:
        return []
    parts = value.split() if isinstance(value, str) else []
    if len(parts) != 3:
        problem = "it has not the three words device, driver and firmware"
        raise InputError(source, key[:80], problem, _REMEDY)
    kind = _DEVICES.get(parts[0], "")
    version = clean_version(source, key[:80], parts[2])
    return [Statement(match["name"], version, kind, row=f"{key}: {value}"[:200])] if kind else []
