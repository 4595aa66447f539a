"""The small language that selects nodes: `--select` of campaigns, and the filters of lists.

    profile=hgx-h100-bf3 and rack=su0-rack* and not (tenant=red or state=quarantined)

A term is FIELD=PATTERN or FIELD!=PATTERN. Patterns are globs (`*`, `?`, `[a-c]`), several of them
separated by commas; case matters. `and` binds tighter than `or` and may be left out; `not` binds
tightest. `all` selects every node; FIELD="" is an empty field (`tenant=""`: not allocated).

An expression is untrusted text. It is bounded, and an unknown field is refused, so that a typing
error cannot select other nodes than intended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache
from typing import Any, NamedTuple

from provisioner.model.adoption.capability import Capability, Grant
from provisioner.model.campaign import CampaignNode
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, Origin
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.release.adoption import GRANT_REMEDY, describe_refusal

# ------------------------------------------------------------------------------
# Set aside the adopted nodes over which no person has granted that a campaign may take them.
#
# Without this a campaign would choose such a node in every turn, never begin it, and hold its place
# in the rack against others. So the node is refused like any other one that cannot go: the preview
# names it, the campaign continues without it, takes it when the grant comes, and ends without it.
# Pure.


def refuse_ungranted(
    facts: Sequence[CampaignNode], nodes: Mapping[str, Node], grants: Iterable[Grant]
) -> tuple[CampaignNode, ...]:
    """Return the facts with a blocker on each selected node that no grant lets a campaign take.

    A leaf needs the grant over the tenants' hosts that leave service with it, too.
    """
    granted = tuple(grants)
    whys = {
        name: why
        for name, node in nodes.items()
        if node.origin is not Origin.TAKEN_IN
        and (why := describe_refusal(node, Capability.FIRMWARE, granted))
    }
    if not whys:
        return tuple(facts)
    for host in facts:
        if host.kind is NodeKind.HOST and host.tenant and host.in_service and host.name in whys:
            for leaf in host.leaves:
                whys.setdefault(leaf, whys[host.name])
    return tuple(_refuse(node, whys.get(node.name, "")) for node in facts)


def _refuse(node: CampaignNode, why: str) -> CampaignNode:
    if not why or not node.selected or node.blockers:
        return node
    blocker = Blocker(
        reason=Reason.NOT_GRANTED, subject=node.name, detail=why, unblock=GRANT_REMEDY
    )
    return node.model_copy(update={"blockers": (blocker,)})


LENGTH_MAX = 2000  # characters; a list of a hundred node names fits
TERMS_MAX = 200
DEPTH_MAX = 16  # parentheses and `not` within one another
WILD_MAX = 16  # wildcards in one pattern; matching costs their number times the text's length

Facts = Mapping[str, tuple[str, ...]]  # field -> its values; a field may have many, or none


class NodeField(NamedTuple):
    """A field of a node: where its values are in the record, and in the row that stores it."""

    about: str
    path: tuple[str, ...]
    absent: str | None = ""  # of a row without it; None: a field that has many values, or none


# A field with several values matches if any of them does; `!=` matches if none does.
NODE_FIELDS: Mapping[str, NodeField] = {
    "node": NodeField("its name", ("id",)),
    "kind": NodeField("host or switch", ("kind",)),
    "state": NodeField("where it is on its journey", ("state",)),
    "profile": NodeField("profile of the release", ("profile",)),
    "release": NodeField("release that it is to run", ("release",)),
    "tenant": NodeField("whom it is allocated to", ("tenant",)),
    "vrf": NodeField("where its ports were last proved to be", ("vrf",)),
    "placement": NodeField("none, maintenance, customer or mixed", ("placement",)),
    "site": NodeField("of its location", ("location", "site"), "site"),
    "pod": NodeField("number, from 0", ("location", "pod"), "0"),
    "su": NodeField("scalable unit, from 0", ("location", "scalable_unit"), "0"),
    "rack": NodeField("name of its rack", ("location", "rack")),
    "leaf": NodeField("switches at its cables", ("ports", "switch"), None),
    "rail": NodeField("rails that it has", ("ports", "rail"), None),
    "tag": NodeField("words that people gave it", ("tags",), None),
    "reason": NodeField("why it is blocked", ("blockers", "reason"), None),
}


@dataclass(frozen=True, slots=True)
class _Term:
    field: str
    pattern: re.Pattern[str]
    equal: bool

    def matches_facts(self, facts: Facts) -> bool:
        is_match = any(self.pattern.fullmatch(v) for v in facts.get(self.field, ()) or ("",))
        return is_match is self.equal


@dataclass(frozen=True, slots=True)
class _Not:
    inner: _Part

    def matches_facts(self, facts: Facts) -> bool:
        return not self.inner.matches_facts(facts)


@dataclass(frozen=True, slots=True)
class _Many:
    parts: tuple[_Part, ...]
    every: bool  # and; else or

    def matches_facts(self, facts: Facts) -> bool:
        return (all if self.every else any)(p.matches_facts(facts) for p in self.parts)


_Part = _Term | _Not | _Many


class ExpressionError(InputError):
    """A mistake in an expression. `at`: number of its first character, from 1."""

    def __init__(
        self,
        source: str,
        place: int,
        problem: str,
        remedy: str,
        *,
        length: int = 1,
        expected: Sequence[str] = (),
    ) -> None:
        super().__init__(source, f"character {place + 1}", problem, remedy)
        self.at = place + 1
        self.length = length  # of the part that is wrong; 0: something is missing there
        self.expected = tuple(expected)  # words that may stand there


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; `text` is its source, `patterns` what is asked of each field."""

    text: str
    _root: _Part
    patterns: Mapping[str, tuple[str, ...]]

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(self.patterns)

    def matches_facts(self, facts: Facts) -> bool:
        """Return whether an object with these fields is selected."""
        return self._root.matches_facts(facts)


def parse(text: str, fields: Iterable[str], source: str = "--select") -> Expression:
    """Parse an expression over these fields. Raises InputError with the place of the fault."""
    return _Parser(text, frozenset(fields), source).read()


def select(text: str, nodes: Iterable[Node], source: str = "--select") -> tuple[Node, ...]:
    """Return the nodes that an expression selects, in their order. Raises InputError."""
    return pick(_node_expression(text, source), nodes)


def pick(
    expression: Expression, nodes: Iterable[Node], more: Callable[[Node], Facts] = lambda _: {}
) -> tuple[Node, ...]:
    """Return the nodes that an expression selects. `more`: fields that nodes do not have."""
    own = expression.fields & NODE_FIELDS.keys()
    if expression.fields - own:
        return tuple(
            n for n in nodes if expression.matches_facts({**read_fields(n, own), **more(n)})
        )
    if not own:  # "all", or "not all"
        return tuple(nodes) if expression.matches_facts({}) else ()
    return tuple(n for n in nodes if expression.matches_facts(read_fields(n, own)))


def read_fields(node: Node, names: Iterable[str] = NODE_FIELDS) -> Facts:
    return {name: _read(node, NODE_FIELDS[name], getattr) for name in names}


def read_stored(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return one field of a node from the JSON of its row, without its record."""
    return _read(body, NODE_FIELDS[name], lambda record, part: record.get(part))


def _read(record: object, field: NodeField, get: Callable[[Any, str], object]) -> tuple[str, ...]:
    found = [record]
    for part in field.path:
        found = [one for inside in found for one in _each(get(inside, part))]
    texts = {str(one) for one in found}
    if not texts and field.absent is not None:
        return (field.absent,)
    return tuple(sorted(texts))


def _each(value: object) -> Iterable[object]:
    if isinstance(value, tuple | list):
        return value
    return () if value is None else (value,)


@lru_cache(maxsize=64)  # lists are filtered page by page with the same text
def _node_expression(text: str, source: str) -> Expression:
    return parse(text, NODE_FIELDS, source)


_TOKEN = re.compile(r'\s*(?:([()])|(!=|=)|"([^"]*)"|([^\s()"=!,]+)|(,))')
_WORDS = ("and", "or", "not", "all")
_REMEDY = "Write it like: profile=hgx-* and not tenant=red (docs/campaigns.md)."


FOLDED = frozenset({"serial"})  # fields whose values are in small letters, whatever is asked
SIGNS = ("=", "!=")
LISTED_MAX = 40  # words of a refusal


class _Parser:
    """Parses from left to right; `_at` is the index of the next token."""

    def __init__(self, text: str, fields: frozenset[str], source: str) -> None:
        self._text = text
        self._fields = fields
        self._source = source
        self._tokens: list[tuple[str, str, int]] = []  # (kind, text, place)
        self._at = self._terms = self._depth = 0
        self._patterns: dict[str, tuple[str, ...]] = {}

    def read(self) -> Expression:
        if len(self._text) > LENGTH_MAX:
            raise self._wrong(LENGTH_MAX, f"it is longer than {LENGTH_MAX} characters")
        self._split()
        if not self._tokens:
            raise self._wrong(0, "it is empty", expected=self._suggest(""))
        root = self._either()
        if self._at < len(self._tokens):
            problem = f"{self._tokens[self._at][1]!r:.40} is not expected"
            raise self._wrong(self._place(), problem, expected=("and", "or"))
        return Expression(self._text, root, self._patterns)

    def _split(self) -> None:
        at = 0
        end = len(self._text.rstrip())
        kinds = ("bracket", "sign", "quoted", "word", "comma")
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._wrong(at, f"{self._text[at : at + 20]!r} cannot be read")
            number = match.lastindex or 1
            self._tokens.append((kinds[number - 1], match[number], match.start(number)))
            at = match.end()

    def _either(self) -> _Part:
        parts = [self._both()]
        while self._word("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else _Many(tuple(parts), every=False)

    def _both(self) -> _Part:
        parts = [self._one()]
        while self._word("and") or self._begins():
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else _Many(tuple(parts), every=True)

    def _begins(self) -> bool:
        """Return whether a term begins here: `and` may be left out."""
        kind, text = self._peek()
        return (kind == "bracket" and text == "(") or (kind == "word" and text not in ("and", "or"))

    def _one(self) -> _Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(self._place(), f"more than {DEPTH_MAX} parts within one another")
        try:
            if self._word("not"):
                return _Not(self._one())
            if self._take("bracket", "("):
                inner = self._either()
                if not self._take("bracket", ")"):
                    problem = "a closing parenthesis is missing"
                    raise self._wrong(self._place(), problem, expected=(")", "and", "or"))
                return inner
            if self._word("all"):
                return _Many((), every=True)
            return self._term()
        finally:
            self._depth -= 1

    def _term(self) -> _Part:
        place = self._place()
        kind, field = self._peek()
        if kind != "word" or field in _WORDS:
            problem = "FIELD=PATTERN is expected here"
            raise self._wrong(place, problem, expected=("not", "(", *self._suggest("")))
        self._at += 1
        if field not in self._fields:
            near = self._suggest(field)
            raise self._wrong(
                place,
                f"there is no field {field!r:.40}",
                f"Fields: {', '.join(near)}.",
                expected=near,
            )
        sign = self._peek()[1] if self._peek()[0] == "sign" else ""
        if not sign:
            problem = f"= or != is expected after {field}"
            raise self._wrong(self._place(), problem, expected=SIGNS)
        self._at += 1
        patterns = [self._pattern()]
        while self._take("comma", ","):
            patterns.append(self._pattern())
        self._terms += len(patterns)
        if self._terms > TERMS_MAX:
            raise self._wrong(place, f"there are more than {TERMS_MAX} patterns")
        if field in FOLDED:
            patterns = [p.casefold() for p in patterns]
        self._patterns[field] = (*self._patterns.get(field, ()), *patterns)
        joined = "|".join(f"(?:{translate(p)})" for p in patterns)
        return _Term(field, re.compile(joined), sign == "=")

    def _pattern(self) -> str:
        kind, text = self._peek()
        if kind not in ("word", "quoted"):
            raise self._wrong(self._place(), "a pattern is expected here")
        if text.count("*") + text.count("?") > WILD_MAX:
            raise self._wrong(self._place(), f"a pattern has more than {WILD_MAX} wildcards")
        self._at += 1
        return text

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at][:2] if self._at < len(self._tokens) else ("", "")

    def _take(self, kind: str, text: str) -> bool:
        if self._peek() != (kind, text):
            return False
        self._at += 1
        return True

    def _word(self, text: str) -> bool:
        """Consume a keyword, unless it is a field of that name before a sign."""
        after = self._tokens[self._at + 1][0] if self._at + 1 < len(self._tokens) else ""
        return after != "sign" and self._take("word", text)

    def _place(self) -> int:
        return self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text)

    def _suggest(self, begun: str) -> tuple[str, ...]:
        """Return the fields that may be meant: those that hold the text, else alike ones."""
        names = sorted(self._fields, key=lambda name: (name not in NODE_FIELDS, len(name), name))
        alike = [n for n in names if begun in n] if 1 < len(begun) <= LISTED_MAX else []
        if not alike and len(begun) <= LISTED_MAX:
            alike = get_close_matches(begun, names, 8) if begun else []
        return tuple((alike or names)[:LISTED_MAX])

    def _wrong(
        self, place: int, problem: str, remedy: str = _REMEDY, expected: Sequence[str] = ()
    ) -> ExpressionError:
        words = (len(text) for _, text, at in self._tokens if at == place)
        length = next(words, max(0, min(1, len(self._text) - place)))
        return ExpressionError(
            self._source, place, problem, remedy, length=length, expected=expected
        )
