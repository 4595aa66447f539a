"""Makes the mutants of one function or constant: each differs from the source in one small way.

A mutation replaces one node of the syntax tree by another one. The rules are those that model
mistakes in decisions: a condition that always or never holds, an operand that was forgotten, a
bound that is off by one, a wrong member of an enumeration, a write or an entry that is left out.
Text for people is never changed, nor are assertions, nor the lengths that texts are cut to, nor
limits and durations that a module names: any other figure would do as well.
"""

from __future__ import annotations

import ast
import copy
import enum
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
Constant = ast.Assign | ast.AnnAssign
_TEXT_KEYWORDS = frozenset({"detail", "unblock", "outcome", "name", "title", "note"})
_COMPARES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change in one function. `name` stays the same while the code around it changes."""

    target: str  # module:qualified name
    change: str  # "before => after"
    number: int  # among equal changes in this function, from 1
    lines: range  # of the statement, in its file
    build: Callable[[], ast.Module]  # its module with the change, and without what is beside it

    @property
    def name(self) -> str:
        """By which it is reported, and listed as equivalent."""
        suffix = f" #{self.number}" if self.number > 1 else ""
        return f"{self.target}: {self.change}{suffix}"


@dataclass(frozen=True)
class _Change:
    """`path` leads from the function to the node that is replaced; () is the function."""

    path: tuple[tuple[str, int], ...]
    new: ast.AST | None  # None: the statement becomes `pass`
    before: str
    after: str


def mutate(
    module: ast.Module, target: str, function: Function | Constant, names: Mapping[str, Any]
) -> Iterator[Mutant]:
    """Every mutant of a function or a constant. `names`: of its module, for enumerations."""
    counted: dict[str, int] = {}
    for change in _changes(function, names):
        words = f"{change.before} => {change.after}"
        counted[words] = counted.get(words, 0) + 1
        yield Mutant(
            target,
            words,
            counted[words],
            _statement_lines(function, change.path),
            partial(_changed, module, function, change),
        )


def _changed(module: ast.Module, function: Function | Constant, change: _Change) -> ast.Module:
    """A module with the changed function alone, in its class, which compiles in a moment."""
    changed = copy.deepcopy(function)
    field, at = change.path[-1]
    _put(_follow(changed, change.path[:-1]), field, at, change.new or ast.Pass())
    whole: ast.stmt = changed
    for statement in module.body:
        if isinstance(statement, ast.ClassDef) and function in statement.body:
            whole = copy.copy(statement)
            whole.body = [changed]
    future = [s for s in module.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    return ast.fix_missing_locations(ast.Module([*future, whole], []))


def _changes(function: Function | Constant, names: Mapping[str, Any]) -> Iterator[_Change]:
    for path, node in _walk(function):
        parent = _follow(function, path[:-1])
        for new, before, after in _replacements(node, parent, path[-1][0], names):
            yield _Change(path, new, before, after)


def _walk(function: Function | Constant) -> Iterator[tuple[tuple[tuple[str, int], ...], ast.AST]]:
    """Every node of the body, or of the value, with its path, in the order of the source."""

    def below(node: ast.AST, path: tuple[tuple[str, int], ...]) -> Iterator[Any]:
        for field, value in ast.iter_fields(node):
            if field in _UNTOUCHED.get(type(node), ()):
                continue
            for at, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or isinstance(child, _SKIPPED):
                    continue
                if _is_text(child):
                    continue
                yield (*path, (field, at)), child
                yield from below(child, (*path, (field, at)))

    if isinstance(function, Constant):
        value = function.value
        # a figure or a text alone is no decision
        if value is not None and not isinstance(value, ast.Constant | ast.JoinedStr | ast.BinOp):
            yield (("value", 0),), value
            yield from below(value, (("value", 0),))
        return
    for at, statement in enumerate(function.body):
        if not _is_text(statement) and not isinstance(statement, _SKIPPED):
            yield (("body", at),), statement
            yield from below(statement, (("body", at),))


# assertions state our own invariants, f-strings are for people, operators belong to their nodes
_SKIPPED = (ast.Assert, ast.JoinedStr, ast.expr_context, ast.operator, ast.cmpop, ast.boolop)
_UNTOUCHED: dict[type[ast.AST], tuple[str, ...]] = {
    ast.FunctionDef: ("args", "decorator_list", "returns"),
    ast.AsyncFunctionDef: ("args", "decorator_list", "returns"),
    ast.AnnAssign: ("annotation", "target"),
    ast.Slice: ("lower", "upper", "step"),
    ast.ExceptHandler: ("type",),
}


def _replacements(
    node: ast.AST, parent: ast.AST, field: str, names: Mapping[str, Any]
) -> Iterator[tuple[ast.AST | None, str, str]]:
    match node:
        case ast.expr():
            if field == "test" and isinstance(parent, ast.If | ast.IfExp | ast.While):
                yield from _conditions(node, parent)
            elif field == "ifs":
                yield _swap(node, ast.Constant(True))
            yield from _expressions(node, parent, field, names)
        case ast.stmt():
            yield from _statements(node)
        case ast.ExceptHandler():
            if node.type is not None:
                never = ast.ExceptHandler(ast.Tuple([], ast.Load()), node.name, node.body)
                yield never, f"except {ast.unparse(node.type)}", "except ()"
        case ast.match_case():
            if node.guard is not None:
                new = ast.match_case(node.pattern, None, node.body)
                yield new, f"case if {ast.unparse(node.guard)}", "case"


def _conditions(node: ast.expr, parent: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    before = f"{type(parent).__name__.lower()} {ast.unparse(node)}"
    for value in (True, False):
        if not (isinstance(parent, ast.While) and value):
            yield ast.Constant(value), before, str(value)


def _expressions(
    node: ast.expr, parent: ast.AST, field: str, names: Mapping[str, Any]
) -> Iterator[tuple[ast.AST, str, str]]:
    decides = field == "test" and isinstance(parent, ast.If | ast.IfExp | ast.While)
    match node:
        case ast.Constant() if not decides:
            yield from _constants(node, parent)
        case ast.Compare():
            yield from _compares(node, decides=decides)
        case ast.UnaryOp(ast.Not(), operand) if not decides:
            yield _swap(node, operand)
        case ast.UnaryOp(ast.USub(), operand):
            yield _swap(node, operand)
        case ast.BoolOp() | ast.BinOp():
            yield from _operands(node)
        case ast.Attribute():
            yield from _members(node, names)
        case ast.Call():
            yield from _calls(node, names)
        case ast.Dict(keys, values):
            for at in range(len(keys)):
                fewer = ast.Dict(keys[:at] + keys[at + 1 :], values[:at] + values[at + 1 :])
                yield fewer, _entry(keys[at], values[at]), "no entry"
        case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
            yield from _elements(node, elements, parent)


def _compares(node: ast.Compare, *, decides: bool) -> Iterator[tuple[ast.AST, str, str]]:
    for at, op in enumerate(node.ops):
        # a condition that always and one that never holds are stronger than its opposite
        if not decides or len(node.ops) > 1 or isinstance(op, _ORDERS):
            changed = [*node.ops[:at], _COMPARES[type(op)](), *node.ops[at + 1 :]]
            yield _swap(node, ast.Compare(node.left, changed, node.comparators))


def _operands(node: ast.BoolOp | ast.BinOp) -> Iterator[tuple[ast.AST, str, str]]:
    match node:
        case ast.BoolOp(op, values):
            for at in range(len(values)):
                left = values[:at] + values[at + 1 :]
                yield _swap(node, left[0] if len(left) == 1 else ast.BoolOp(op, left))
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd(), right):
            yield _swap(node, left)
            yield _swap(node, right)
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            yield _swap(node, ast.BinOp(left, _ARITHMETIC[type(op)](), right))


def _constants(node: ast.Constant, parent: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    value = node.value
    if isinstance(value, bool):
        yield _swap(node, ast.Constant(not value), _told(parent, node))
    elif isinstance(value, int | float):
        yield _swap(node, ast.Constant(value + 1), _told(parent, node))
    elif isinstance(value, str):
        text = isinstance(parent, ast.keyword) and parent.arg in _TEXT_KEYWORDS
        compared = isinstance(parent, ast.Compare)
        blank = not value and isinstance(parent, ast.keyword | ast.Return | ast.IfExp | ast.Dict)
        if compared or (blank and not text):
            yield _swap(node, ast.Constant(value + "X"), _told(parent, node))


def _told(parent: ast.AST, node: ast.AST) -> str:
    """What stands around a constant, so that it can be found."""
    text = ast.unparse(parent) if isinstance(parent, ast.expr | ast.keyword) else ""
    return f" in {text}" if text and text != ast.unparse(node) and len(text) < 60 else ""


def _members(node: ast.Attribute, names: Mapping[str, Any]) -> Iterator[tuple[ast.AST, str, str]]:
    """The next member of the same enumeration."""
    kind = names.get(node.value.id) if isinstance(node.value, ast.Name) else None
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and node.attr in kind.__members__:
        members = list(kind.__members__)
        other = members[(members.index(node.attr) + 1) % len(members)]
        yield _swap(node, ast.Attribute(node.value, other, ast.Load()))


def _calls(node: ast.Call, names: Mapping[str, Any]) -> Iterator[tuple[ast.AST, str, str]]:
    if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
        other = ast.Name(_OPPOSITES[node.func.id], ast.Load())
        yield ast.Call(other, node.args, node.keywords), ast.unparse(node), other.id
    if isinstance(node.func, ast.Attribute) and node.func.attr == "where" and len(node.args) > 1:
        for at, gone in enumerate(node.args):  # a condition of a query
            fewer = ast.Call(node.func, node.args[:at] + node.args[at + 1 :], node.keywords)
            yield fewer, f"where({ast.unparse(gone)})", "no condition"
    for at, given in enumerate(node.keywords):
        text = isinstance(given.value, ast.JoinedStr) or given.arg in _TEXT_KEYWORDS
        if given.arg is not None and not text and not _is_needed(node.func, given.arg, names):
            fewer = ast.Call(node.func, node.args, node.keywords[:at] + node.keywords[at + 1 :])
            yield fewer, f"{ast.unparse(node.func)}({ast.unparse(given)})", "no argument"


def _is_needed(called: ast.expr, name: str, names: Mapping[str, Any]) -> bool:
    """Whether a call without this argument fails at once, always."""
    known = names.get(called.id) if isinstance(called, ast.Name) else None
    try:
        parameter = inspect.signature(known).parameters.get(name) if known is not None else None
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _elements(
    node: ast.expr, elements: list[ast.expr], parent: ast.AST
) -> Iterator[tuple[ast.AST, str, str]]:
    """Collections that are searched or joined; those that are taken apart have their number."""
    searched = isinstance(parent, ast.Compare | Constant) or _is_set(parent)
    joined = any(isinstance(e, ast.Starred) for e in elements)
    if not (searched or joined) or isinstance(getattr(node, "ctx", None), ast.Store):
        return
    for at, gone in enumerate(elements):
        fewer = copy.copy(node)
        fewer.elts = elements[:at] + elements[at + 1 :]  # type: ignore[attr-defined]
        yield fewer, ast.unparse(node), f"without {ast.unparse(gone)}"


def _statements(node: ast.stmt) -> Iterator[tuple[ast.AST | None, str, str]]:
    match node:
        case ast.Expr(ast.Call() | ast.Await()):
            yield None, ast.unparse(node), "pass"
        case ast.AugAssign(value=value) if not isinstance(value, ast.JoinedStr):
            yield None, ast.unparse(node), "pass"
        case ast.Raise():
            yield None, ast.unparse(node), "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield None, ast.unparse(node), "pass"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant | ast.JoinedStr):
            yield ast.Return(ast.Constant(None)), ast.unparse(node), "return None"
        case ast.Continue():
            yield ast.Break(), "continue", "break"
        case ast.Break():
            yield ast.Continue(), "break", "continue"


def _swap(node: ast.AST, new: ast.AST, where: str = "") -> tuple[ast.AST, str, str]:
    return new, ast.unparse(node) + where, ast.unparse(new)


def _is_set(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name("frozenset" | "set")):
            return True
    return False


def _entry(key: ast.expr | None, value: ast.expr) -> str:
    return f"**{ast.unparse(value)}" if key is None else f"{ast.unparse(key)}: {ast.unparse(value)}"


def _is_text(node: ast.AST) -> bool:
    """A docstring, or a line of the log."""
    match node:
        case ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("log")))):
            return True
    return False


# --- positions


def _follow(node: ast.AST, path: tuple[tuple[str, int], ...]) -> ast.AST:
    for field, at in path:
        value = getattr(node, field)
        node = value[at] if isinstance(value, list) else value
    return node


def _put(node: ast.AST, field: str, at: int, new: ast.AST) -> None:
    value = getattr(node, field)
    if isinstance(value, list):
        ast.copy_location(new, value[at])
        value[at] = copy.deepcopy(new)
    else:
        ast.copy_location(new, value)
        setattr(node, field, copy.deepcopy(new))


def _statement_lines(function: Function | Constant, path: tuple[tuple[str, int], ...]) -> range:
    """The lines that run when the innermost statement around a change is come to."""
    statement: ast.AST = function
    for length in range(1, len(path) + 1):
        node = _follow(function, path[:length])
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            statement = node
    if isinstance(statement, ast.match_case):
        return range(statement.pattern.lineno, statement.body[0].lineno + 1)
    assert isinstance(statement, ast.stmt | ast.ExceptHandler)
    first = statement.lineno
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno or first
    return range(first, max(first, last) + 1)
