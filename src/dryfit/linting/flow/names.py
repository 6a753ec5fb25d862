"""Names as they are written, and as the imports of the file make them."""

from __future__ import annotations

import ast

from dryfit.linting.flow.tree import Syntax


def imports_of(syntax: Syntax) -> dict[str, str]:
    """For each name that an import gives, what it stands for: `F` -> `torch.nn.functional`."""
    found: dict[str, str] = {}
    for node in syntax.each(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        else:
            start = "." * node.level + (node.module or "")
            for each in node.names:
                found[each.asname or each.name] = f"{start}.{each.name}"
    return found


def reference(node: ast.AST | None) -> str:
    """A chain of names, attributes and constant keys as text: `self.losses['d']`; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = reference(node.value)
        return f"{base}.{node.attr}" if base else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = reference(node.value)
        return f"{base}[{node.slice.value!r}]" if base else ""
    return ""


def prefixes(name: str) -> list[str]:
    """The name and those it is part of: `a.b[0]` -> `a.b[0]`, `a.b`, `a`."""
    found = [name]
    for index in range(len(name) - 1, 0, -1):
        if name[index] in ".[":
            found.append(name[:index])
    return found


def takes(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Whether a chain takes one of `attributes` on its way: `loss.data[0]` takes `data`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and node.attr in attributes:
            return True
        node = node.value
    return False


def full_name(imports: dict[str, str], node: ast.AST | None) -> str:
    """What a chain of names stands for: `F.mse_loss` -> `torch.nn.functional.mse_loss`."""
    name = reference(node)
    if not name:
        return ""
    head, dot, rest = name.partition(".")
    return imports.get(head, head) + dot + rest


def last_part(name: str) -> str:
    """`torch.nn.Linear` -> `Linear`."""
    return name.rpartition(".")[2]


def base_name(node: ast.AST) -> str:
    """The chain of names before the first subscript: `self.totals[k]` -> `self.totals`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return reference(node)


def number_of(node: ast.AST | None) -> int | float | None:
    """The number that is written there, if one is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return node.value
    return None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value given for a keyword of a call."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def is_true(node: ast.AST | None) -> bool:
    """Whether the expression is written as True."""
    return isinstance(node, ast.Constant) and node.value is True


def is_false(node: ast.AST | None) -> bool:
    """Whether the expression is written as False."""
    return isinstance(node, ast.Constant) and node.value is False
