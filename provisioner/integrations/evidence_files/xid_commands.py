"""`provisioner xid CODE`: the meaning and remedy of an Xid or SXid, its registers decoded."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from provisioner.checks.readers.kernel_lines import parse_log_line
from provisioner.checks.xid.error_codes import Explanation, Family, explain_sxid
from provisioner.checks.xid.xid_events import find_event
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.cli.options.tables import Table
from provisioner.model.input_error import InputError

_WORD = re.compile(r"^(?:0[xX])?[0-9a-fA-F]{1,8}$")
WORDS_MAX = 8  # registers of one message


def xid(
    code: Annotated[str, typer.Argument(help="Number, such as 79, or a whole log line in quotes.")],
    registers: Annotated[
        str,
        typer.Option(
            help="Seven of Xid 74, or intrInfo and errorStatus of 144 to 150, in hexadecimal,"
            ' separated by commas or spaces: "0x0, 0x0, 0x10000, ...".'
        ),
    ] = "",
    text: Annotated[str, typer.Option(help="The message's text after the number.")] = "",
    switch: Annotated[bool, typer.Option("--switch", help="The number is an SXid.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Explain an Xid, or with --switch an NVSwitch's SXid.

    Example: provisioner xid 79
    """
    explanation = _explained(code, _words(registers), text, switch=switch)
    if as_json:
        typer.echo(json.dumps(explanation.model_dump(mode="json"), indent=2))
    else:
        _show(explanation)


def _explained(code: str, registers: tuple[int, ...], text: str, *, switch: bool) -> Explanation:
    event = find_event(parse_log_line(code))
    if event is not None:
        return event.explain()
    if not (code.isascii() and code.isdecimal() and len(code) <= 6):
        remedy = "Give its number, as 79, or the whole line of the log in quotes."
        raise InputError("CODE", code[:80], "neither a number nor a line with an Xid", remedy)
    if switch:
        if registers or text:
            remedy = "Leave --registers and --text out: an SXid has none."
            raise InputError("--switch", code, "an SXid is explained by its number", remedy)
        return explain_sxid(int(code))
    return explain_xid(int(code), text, registers)


def _words(registers: str) -> tuple[int, ...]:
    registers_given = [w for w in re.split(r"[\s,()]+", registers) if w]
    wrong = next((w for w in registers_given if not _WORD.match(w)), None)
    if wrong is not None or len(registers_given) > WORDS_MAX:
        remedy = "Give hexadecimal words of 32 bits, as they stand in the log."
        shown = (wrong or registers)[:80]
        raise InputError("--registers", shown, f"not up to {WORDS_MAX} such words", remedy)
    return tuple(int(w, 16) for w in registers_given)


def _show(told: Explanation) -> None:
    name = "SXid" if told.family is Family.SXID else "Xid"
    table = Table(title=f"{name} {told.code}", title_justify="left", show_header=False, box=None)
    rows = [
        ("means", told.meaning),
        ("name", told.mnemonic),
        ("decoded", "\n".join(told.details)),
        ("at once", told.action.value or "no action is published"),
        ("to find out why", told.investigate),
        ("to us", told.severity.value if told.severity else "nothing to do"),
        ("source", told.source if told.known else f"none: not in {told.source}"),
    ]
    for label, text in rows:
        if text:
            table.add_row(f"[bold]{label}[/]", escape(text))
    Console().print(table)
