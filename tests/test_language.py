"""Habits of language that turn plain English into a dialect: counted, and kept out.

Three habits of prose (clauses such as "what is", forms of "tell", and "whoever" or "nobody" as a
subject), and vague names of local variables.
A folder in `PENDING` is not rewritten yet; none is left, and none is added.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# at most so many in 1,000 words, or so many percent of the names
LIMITS = {"what": 1.0, "tell": 0.2, "whoever": 0.3, "vague": 1.0}
HABITS = {
    "what": re.compile(
        r"\bwhat (?:is|are|was|were|has|had|have|it|they|we|of|comes|came|can|may|must|will|would"
        r"|does|do|did|there|nobody|no|a|an|the|this|that|to|at|in|goes|stands|holds|makes)\b",
        re.IGNORECASE,
    ),
    "tell": re.compile(r"\b(?:tells?|telling|told)\b", re.IGNORECASE),
    "whoever": re.compile(r"\b(?:whoever|whomever|nobody|somebody|anybody)\b", re.IGNORECASE),
}
VAGUE = frozenset(
    {"found", "told", "words", "seen", "known", "wanted", "said", "given", "kept", "asked"}
)
PRODUCT = ROOT / "provisioner"
PENDING: frozenset[str] = frozenset()
FOLDERS = sorted(
    p
    for p in (*PRODUCT.iterdir(), ROOT / "images", ROOT / "delivery", ROOT / "ansible")
    if any(p.rglob("*.py"))
)


# a string, which may hold the sign of a comment, or a comment; in Python 3.11 no string of one
# kind of quotes stands within another of the same kind
TOKENS = re.compile(
    r'''("""|\'\'\')(?:\\.|(?!\1).)*\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(#[^\n]*)''',
    re.DOTALL,
)


def _read_prose(text: str, nodes: Sequence[ast.AST]) -> str:
    """Return the docstrings and comments of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    parts = [ast.get_docstring(n) or "" for n in nodes if isinstance(n, kinds)]
    return "\n".join([*parts, *(m[2] for m in TOKENS.finditer(text) if m[2])])


def _count_prose(texts: Iterator[str]) -> dict[str, float]:
    counts, words = Counter[str](), 0
    for text in texts:
        words += len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))
        for name, pattern in HABITS.items():
            counts[name] += len(pattern.findall(text))
    return {name: 1000.0 * counts[name] / max(words, 1) for name in HABITS}


def _count_vague_locals(nodes: Iterable[ast.AST]) -> Counter[bool]:
    return Counter(
        n.id in VAGUE for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )


def _measure(folder: Path) -> dict[str, float]:
    prose: list[str] = []
    stored = Counter[bool]()
    for file in folder.rglob("*.py"):
        if "content" not in file.parts:
            text = file.read_text(encoding="utf-8")
            nodes = list(ast.walk(ast.parse(text)))  # once: half of the time went into it
            prose.append(_read_prose(text, nodes))
            stored += _count_vague_locals(nodes)
    vague = 100.0 * stored[True] / max(stored.total(), 1)
    return {**_count_prose(iter(prose)), "vague": vague}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_docstrings_comments_and_names_are_plain_english(folder: Path) -> None:
    over = {n: round(v, 2) for n, v in _measure(folder).items() if v > LIMITS[n]}

    if folder.name in PENDING:
        assert over, f"{folder.name} is rewritten: take it out of PENDING"
        return
    assert over == {}


def test_the_documentation_is_plain_english() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    written = (p for p in pages if "generated" not in p.parts)
    counts = _count_prose(p.read_text(encoding="utf-8") for p in written)

    assert {n: v for n, v in counts.items() if v > LIMITS[n]} == {}


def test_the_counters_notice_each_habit() -> None:
    text = 'def f():\n    """Tell whoever asks what is wrong."""\n    found = 1\n'
    nodes = list(ast.walk(ast.parse(text)))
    counts = _count_prose(iter([_read_prose(text, nodes)]))

    assert all(value > LIMITS[name] for name, value in counts.items())
    assert _count_vague_locals(nodes) == {True: 1}


def test_comments_are_those_of_the_tokenizer() -> None:
    for file in (ROOT / "provisioner" / "planning").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [t.string for t in tokens if t.type == tokenize.COMMENT]
        assert [m[2] for m in TOKENS.finditer(text) if m[2]] == comments
