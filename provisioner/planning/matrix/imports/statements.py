"""The versions that an imported file states, in one form for all file formats.

A file is hostile until it is read: names and versions are short printable ASCII, their number is
bounded, and words that stand for "no version" are no version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from provisioner.model.input_error import InputError

STATEMENTS_MAX = 5_000  # of one file; a release states some hundred, Dell's whole catalogue 4,000
TEXT_CHARS_MAX = 200  # of a name, a version or a file name
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_NO_VERSION = frozenset({"", "-", "--", "n/a", "na", "none", "null", "~", "unknown", "tbd"})
_SHA256 = re.compile(r"[0-9a-f]{64}")
# "9.7E+05": a spreadsheet has taken a version for a number, and the digits are lost
_SCIENTIFIC = re.compile(r"\d+(\.\d+)?[eE][+-]\d+")


class Statement(NamedTuple):
    """One version of one component, as a file states it."""

    name: str  # of the component, in the file's words
    version: str
    kind: str = ""  # component kind; "" if no rule recognises the name
    file: str = ""  # the file that brings the version
    sha256: str = ""  # of that file
    evidence: str = ""
    profile: str = ""  # the only profile that it is for; "" if the file does not say


class Contents(NamedTuple):
    """A package with a version of its own, and the versions of its parts."""

    kind: str
    version: str
    parts: tuple[Statement, ...]


class Import(NamedTuple):
    """Everything that one file states; `notes` are the parts of it that are not used."""

    source: str
    format: str
    statements: tuple[Statement, ...]
    contents: tuple[Contents, ...] = ()
    notes: tuple[str, ...] = ()


def clean_text(source: str, where: str, value: object) -> str:
    """Return a name or a version. Raises InputError for anything but short printable ASCII."""
    text = value.strip() if isinstance(value, str) else ""
    if not isinstance(value, str) or len(text) > TEXT_CHARS_MAX:
        raise InputError(
            source, where, "this is no short text", "Take the maker's file, unchanged."
        )
    if text and not _PRINTABLE.fullmatch(text):
        raise InputError(source, where, "it has unprintable characters", "Is the file damaged?")
    return text


def clean_version(source: str, where: str, value: object) -> str:
    """Return a version, or "" where the file says that there is none. Raises InputError."""
    text = clean_text(source, where, value)
    if _SCIENTIFIC.fullmatch(text):
        raise InputError(
            source,
            where,
            f"a spreadsheet has changed a version into the number {text}",
            "Format the column as text and export it again.",
        )
    return "" if text.lower() in _NO_VERSION else text


def clean_sha256(source: str, where: str, value: object) -> str:
    """Return a SHA-256 in lower case, or "" for an empty text. Raises InputError for others."""
    text = clean_text(source, where, value).lower()
    if text and not _SHA256.fullmatch(text):
        raise InputError(source, where, "this is no SHA-256", "It has 64 hexadecimal digits.")
    return text


def clean_file(source: str, where: str, value: object) -> str:
    """Return the last part of a path or URL, without its query. Raises InputError."""
    name = re.split(r"[/\\]", clean_text(source, where, value).partition("?")[0])[-1]
    return "" if name in {".", ".."} else name


def check_count(source: str, statements: Sequence[Statement]) -> None:
    """Raise InputError for a file that states more than any release has."""
    if len(statements) > STATEMENTS_MAX:
        problem = f"it states more than {STATEMENTS_MAX} versions"
        raise InputError(source, "", problem, "Filter it, e.g. with --system.")
