"""What a statement does to a name, by its syntax: adds to it, takes from it, carries its value on.

`attribute` says that the name is one of an object's attributes, whatever variable the object is in.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dryfit.watching.source_trees import last_name, with_surroundings

_ADDING = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put", "push"})
_TAKING = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard", "detach_"})


def gives(statement: ast.stmt, name: str, attribute: bool) -> bool:
    return bool(adds(statement, name, attribute) or assigns(statement, name, attribute))


def cuts(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it gives the name its own value without what is behind it: `name = name.detach()`, `name = name[-9:]`."""
    value = getattr(statement, "value", None)
    if not assigns(statement, name, attribute) or value is None:
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("detach", "item") and mentions(value.func.value, name, attribute)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):  # `name = (name + [value])[-9:]`
        return mentions(value.value, name, attribute)
    return isinstance(value, ast.Subscript) and _is_name(value, name, attribute)


def picks_another(statement: ast.stmt, name: str, attribute: bool, key: str) -> bool:
    """Whether it deals with another constant's part alone: of `history["lr"]`, where the key is `'loss'`."""
    picked = [
        repr(node.slice.value)
        for node in ast.walk(statement)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and not isinstance(node.value, ast.Subscript)
        and _is_name(node.value, name, attribute)
    ]
    return bool(key and picked) and key not in picked


def has_room(within: ast.AST, name: str, attribute: bool) -> bool:
    """Whether there is added to it only while there is room: below `if len(name) < limit`."""
    return any(
        any(_asks_for_room(each, name, attribute) for each in ast.walk(node.test))
        and any(adds(each, name, attribute) for each in node.body)
        for node in ast.walk(within)
        if isinstance(node, ast.If)
    )


def _asks_for_room(test: ast.AST, name: str, attribute: bool) -> bool:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    smaller = test.left if isinstance(test.ops[0], (ast.Lt, ast.LtE)) else test.comparators[0]
    return (
        isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        and isinstance(smaller, ast.Call)
        and last_name(smaller.func) == "len"
        and mentions(smaller, name, attribute)
    )


def is_bounded(statement: ast.stmt, within: ast.AST, name: str, attribute: bool, *, comes_again: bool) -> bool:
    """Whether the same loop or function takes away what this statement adds; `comes_again` says that it runs again."""
    if _goes_round(statement, name, attribute):
        return True
    return any(
        not _only_at_first(around, name)
        and (_takes(other, name, attribute) or (comes_again and _begins_anew(other, name, attribute)))
        for other, around in with_surroundings(within)
        if other is not statement
    )


def adds(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it puts something into what the name holds: `name.append(...)`, `name[k] = ...`, `name += [...]`."""
    if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _ADDING
        and _is_name(call.func.value, name, attribute)
        for call in ast.walk(statement)
    ):
        return True
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, (ast.List, ast.Tuple, ast.ListComp)):
        return _is_name(statement.target, name, attribute)
    return any(
        isinstance(target, ast.Subscript) and _is_name(target, name, attribute) for target in _targets(statement)
    )


def assigns(statement: ast.stmt, name: str, attribute: bool) -> bool:
    return any(_is_name(target, name, attribute) for target in _targets(statement))


def _takes(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it takes away from what the name holds: `name.pop()`, `del name[0]`, `name[i % n] =`, `name[-9:]`."""
    if isinstance(statement, ast.Delete):
        return any(_is_name(target, name, attribute) for target in statement.targets)
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        function = value.func
        if function.attr in _TAKING and _is_name(function.value, name, attribute):
            return True
    return _goes_round(statement, name, attribute) or cuts(statement, name, attribute)


def _begins_anew(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it gives the name another value, that does not come from the one it had: `name = []`."""
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    return (
        value is not None
        and not mentions(value, name, attribute)
        and any(
            not isinstance(target, ast.Subscript) and _is_name(target, name, attribute)
            for target in _targets(statement)
        )
    )


def written(statement: ast.stmt, name: str, attribute: bool) -> str:
    """The name as the statement writes it, without what changes from time to time: `kept` of `kept[number] = ...`."""
    for node in ast.walk(statement):
        if isinstance(node, ast.expr) and _is_name(node, name, attribute):  # the outermost is the first
            while isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
                node = node.value
            return ast.unparse(node).replace("'", '"')
    return name


def _goes_round(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it writes to a place that comes round again: `name[i % n] = ...`."""
    return any(
        isinstance(target, ast.Subscript)
        and _is_name(target, name, attribute)
        and any(isinstance(node, ast.Mod) for node in ast.walk(target.slice))
        for target in _targets(statement)
    )


def _only_at_first(around: list[ast.AST], name: str) -> bool:
    """Whether a statement runs only the first time: below `if name is None`, `if not hasattr(...)`, `if step == 0`."""
    return any(isinstance(node, ast.If) and _is_first_time(node.test, name) for node in around)


def _is_first_time(test: ast.expr, name: str) -> bool:
    nodes = list(ast.walk(test))
    if any(isinstance(node, (ast.Mod, ast.Gt, ast.GtE)) for node in nodes):
        return False
    asks_for_it = any(
        _is_name(node, name, how) for node in nodes if isinstance(node, ast.expr) for how in (False, True)
    )
    has_attribute = any(isinstance(node, ast.Call) and last_name(node.func) in ("hasattr", "getattr") for node in nodes)
    return asks_for_it or has_attribute or any(isinstance(node, ast.Eq) for node in nodes)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    given = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor))
        else []
    )
    found: list[ast.expr] = []
    left = list(given)
    while left:
        target = left.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            left += target.elts
        elif isinstance(target, ast.Starred):
            left.append(target.value)
        else:
            found.append(target)
    return found


def _is_name(node: ast.expr, name: str, attribute: bool) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    if attribute:
        return isinstance(node, ast.Attribute) and node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def mentions(node: ast.AST, name: str, attribute: bool) -> bool:
    return any(isinstance(each, ast.expr) and _is_name(each, name, attribute) for each in ast.walk(node))


def is_sum(value: ast.AST, name: str, attribute: bool) -> bool:
    return any(isinstance(node, ast.BinOp) and mentions(node, name, attribute) for node in ast.walk(value)) and not any(
        isinstance(node, ast.Call) and mentions(node, name, attribute) for node in ast.walk(value)
    )


def is_read_before(statement: ast.stmt, loops: Sequence[ast.AST], name: str) -> bool:
    """Whether the loop reads the name above the line that assigns to it, so that each round reads the last one's."""
    if not loops:
        return False
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and node.lineno < statement.lineno
        for node in ast.walk(loops[-1])
    )
