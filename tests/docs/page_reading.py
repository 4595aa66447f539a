"""Reads the pages: code blocks with the remark before each, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = "provisioner"


@dataclass(frozen=True)
class Block:
    """One fenced block: what the remark above it says, its language, its text."""

    remark: str
    language: str
    text: str


def pages() -> list[Path]:
    """README and every page, but records of what was decided once and what is made anew."""
    written = (p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)
    return [ROOT / "README.md", *sorted(p for p in written if "generated" not in p.parts)]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(remark, language, text) for remark, language, text in found]


def commands(block: Block) -> Iterator[list[str]]:
    """The words of every command line of the program in a block."""
    if block.language not in ("", "sh", "console", "bash"):
        return
    text = re.sub(r"\\\n\s*", " ", block.text)
    for line in text.splitlines():
        line = re.sub(r"^\s*(\$ )?(\w+=\$\()?", "", line)
        if not line.startswith(f"{PROGRAM} "):
            continue
        if not block.language:  # a list of commands: what each is for stands beside it
            line = re.split(r"\s{2,}", line)[0]
        yield from simple_commands(line)


def simple_commands(line: str) -> Iterator[list[str]]:
    """What a shell would run one after the other; redirections and brackets are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for word in [*lexer, ";"]:
        if word in (";", "&&", "||", "|", "&", ")"):
            if words and words[0] == PROGRAM:
                yield words
            words, redirected = [], False
        elif word in (">", ">>", "<"):
            redirected = True
        elif (word != "..." or words[-1].startswith("-")) and not redirected:
            words.append(word.strip("[]"))
