"""Whether an expression holds a graph, and what a loss is made from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dryfit.linting.flow import tree
from dryfit.linting.flow.assignments import Binding
from dryfit.linting.flow.backward import Backward, arithmetic_roots
from dryfit.linting.flow.bindings import Bindings
from dryfit.linting.flow.functions import Functions
from dryfit.linting.flow.grad_mode import GradMode
from dryfit.linting.flow.names import full_name, last_part, reference, takes
from dryfit.linting.flow.objects import Kind
from dryfit.linting.flow.torch_names import (
    DIFFERENTIABLE,
    OUTPUT_NAME,
    PLAIN,
    PLAIN_BUILTINS,
    WITH_INDICES,
    WITHOUT_GRAPH,
)

_MOST_SOURCES = 400


@dataclass(frozen=True, slots=True)
class Tensors:
    """What is known of the tensors of one file."""

    parents: tree.Parents
    imports: dict[str, str]
    bindings: Bindings
    functions: Functions
    grad_mode: GradMode
    kinds: dict[str, Kind]
    modules: dict[str, ast.ClassDef]
    _known: dict[Binding, bool | None] = field(default_factory=dict)
    _sources: dict[ast.AST, frozenset[Binding]] = field(default_factory=dict)

    def is_model_call(self, node: ast.AST) -> bool:
        """Whether the call is a forward pass: `model(x)`, `model.forward(x)`, or `self(x)` in a module."""
        if not isinstance(node, ast.Call):
            return False
        name = reference(node.func)
        if name.endswith(".forward"):
            name = name.removesuffix(".forward")
        if self.kinds.get(name) is Kind.MODEL:
            return not self._forward_without_gradients(name)
        holder = tree.class_of(self.parents, node) if name == "self" else None
        return holder is not None and holder.name in self.modules

    def _forward_without_gradients(self, name: str) -> bool:
        """Whether the model is made here of a class whose forward switches gradients off."""
        for binding in self.bindings.everywhere(name):
            made = full_name(self.imports, binding.value.func) if isinstance(binding.value, ast.Call) else ""
            holder = self.modules.get(made)
            forward = None if holder is None else self.functions.method(holder, "forward")
            if forward is not None and self.grad_mode.off(forward.body[0]):
                return True
        return False

    def holds_graph(self, node: ast.AST | None, depth: int = 8) -> bool | None:
        """True: the value has the graph of a forward pass; False: it has none; None: not known."""
        if node is None or depth == 0:
            return None
        if isinstance(node, (ast.Constant, ast.Compare, ast.BoolOp, ast.JoinedStr)):
            return False
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        if takes(node, WITHOUT_GRAPH):
            return False
        if name := reference(node):
            return self._of_name(name, node, depth)
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            return self.holds_graph(node.value, depth - 1)
        if isinstance(node, (ast.BinOp, ast.Tuple, ast.List)):
            parts: list[ast.expr] = [node.left, node.right] if isinstance(node, ast.BinOp) else node.elts
            return _any(self.holds_graph(each, depth - 1) for each in parts)
        if isinstance(node, ast.UnaryOp):
            return self.holds_graph(node.operand, depth - 1)
        if isinstance(node, ast.IfExp):
            return _same([self.holds_graph(node.body, depth - 1), self.holds_graph(node.orelse, depth - 1)])
        return None

    def _of_name(self, name: str, at: ast.AST, depth: int) -> bool | None:
        found: list[bool | None] = []
        for binding in self.bindings.reaching(name, at):
            if binding.how == "add":
                found.append(self.holds_graph(binding.value, depth - 1) or None)
            elif binding.value is None or binding.how in ("parameter", "define", "for"):
                found.append(None)
            else:
                found.append(self._of_binding(binding, depth))
        # `loss = 0` before `loss += ...`: the sum decides.
        if True in found and all(each is not None for each in found):
            zeros = [each for each in self.bindings.reaching(name, at) if isinstance(each.value, ast.Constant)]
            return True if found.count(True) + len(zeros) == len(found) else None
        return _same(found)

    def _of_binding(self, binding: Binding, depth: int) -> bool | None:
        if binding not in self._known:
            # Until it is known, a name that comes from itself is not.
            self._known[binding] = None
            found = self._of_value(binding, depth)
            if found is None and depth < 4:
                del self._known[binding]
                return None
            self._known[binding] = found
        return self._known[binding]

    def _of_value(self, binding: Binding, depth: int) -> bool | None:
        if self.grad_mode.off(binding.node):
            return False
        value = binding.value
        if isinstance(value, ast.Call) and binding.index >= 1:
            name = last_part(full_name(self.imports, value.func)) or getattr(value.func, "attr", "")
            if name in WITH_INDICES:
                return False
            if self.is_model_call(value) and not OUTPUT_NAME.search(binding.name):
                # What else a model returns may be indices, masks or numbers.
                return None
        function = self.functions.called(value) if isinstance(value, ast.Call) else None
        if function is not None and binding.index >= 0:
            return self._returned(function, depth, binding.index)
        return self.holds_graph(value, depth - 1)

    def _of_call(self, call: ast.Call, depth: int) -> bool | None:
        full = full_name(self.imports, call.func)
        last = last_part(full) or getattr(call.func, "attr", "")
        if full in PLAIN_BUILTINS or last in PLAIN or last == "requires_grad_":
            return False
        if self.grad_mode.off(call):
            return False
        if self.is_model_call(call):
            return True
        name = reference(call.func)
        if self.kinds.get(name) is Kind.LOSS_FUNCTION or (
            isinstance(call.func, ast.Call) and self._makes_loss(call.func)
        ):
            return _any(self.holds_graph(each, depth - 1) for each in call.args)
        function = self.functions.called(call)
        if function is not None:
            return self._returned(function, depth)
        if last in DIFFERENTIABLE:
            if full.startswith("torch.") or full == "sum":
                return _any(self.holds_graph(each, depth - 1) for each in call.args)
            if isinstance(call.func, ast.Attribute):
                return self.holds_graph(call.func.value, depth - 1)
        return None

    def _makes_loss(self, call: ast.Call) -> bool:
        return bool(re.match(r"torch\.nn\..*Loss$", full_name(self.imports, call.func)))

    def _returned(self, function: tree.Function, depth: int, index: int = -1) -> bool | None:
        """The same of what a function returns, or of one part of it."""
        if self.grad_mode.off(function.body[0]):
            return False
        values = [each.value for each in tree.own(function) if isinstance(each, ast.Return)]
        if index >= 0:
            values = [
                each.elts[index] if isinstance(each, ast.Tuple) and index < len(each.elts) else each for each in values
            ]
        return _same([self.holds_graph(each, min(depth - 1, 4)) for each in values])

    def walked_roots(self, backward: Backward, depth: int = 4) -> list[tuple[str, frozenset[Binding]]]:
        """The names whose graph a backward walks, with where they come from: for `(loss / k).backward()`, `loss`."""
        found: list[tuple[str, frozenset[Binding]]] = []

        def add(expression: ast.AST, left: int) -> None:
            for root in arithmetic_roots(expression, self.imports):
                reaching = self.bindings.reaching(reference(root), root)
                found.append((reference(root), frozenset(reaching)))
                for binding in reaching if left else ():
                    if binding.value is not None and binding.how in ("assign", "with", "add"):
                        add(binding.value, left - 1)

        add(backward.loss, depth)
        return found

    def sources(self, expression: ast.AST) -> frozenset[Binding]:
        """The assignments that the value of an expression comes from, through any calls; the nearest few hundred."""
        if expression not in self._sources:
            found: dict[Binding, None] = {}
            todo = [expression]
            while todo and len(found) < _MOST_SOURCES:
                for node in ast.walk(todo.pop()):
                    if isinstance(node, (ast.Name, ast.Attribute)) and (name := reference(node)):
                        for binding in self.bindings.reaching(name, node):
                            if binding not in found:
                                found[binding] = None
                                if binding.value is not None:
                                    todo.append(binding.value)
            self._sources[expression] = frozenset(found)
        return self._sources[expression]


def _any(values: Iterator[bool | None]) -> bool | None:
    listed = list(values)
    if True in listed:
        return True
    return None if None in listed or not listed else False


def _same(values: list[bool | None]) -> bool | None:
    return values[0] if values and all(each is values[0] for each in values) else None
