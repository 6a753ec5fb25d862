"""Whether a place of the program may run with gradients switched off."""

from __future__ import annotations

import ast
import re

from dryfit.linting.flow import tree
from dryfit.linting.flow.bindings import Bindings
from dryfit.linting.flow.functions import Functions
from dryfit.linting.flow.names import full_name, last_part

_SWITCHES = {"no_grad", "inference_mode", "set_grad_enabled", "_set_grad_enabled"}
_STATEMENTS = {"set_grad_enabled", "_set_grad_enabled"}
# Of a manager that this file only names: it may switch them off.
_MAY_SWITCH = re.compile(r"grad|infer|eval|context|ctx|test|frozen", re.IGNORECASE)


class GradMode:
    """Answers for one file; what may be without gradients counts as without."""

    def __init__(
        self,
        syntax: tree.Syntax,
        imports: dict[str, str],
        bindings: Bindings,
        functions: Functions,
    ) -> None:
        self._parents = syntax.parents
        self._imports = imports
        self._bindings = bindings
        self._functions = functions
        self._known: dict[ast.AST, bool] = {}
        # A statement `torch.set_grad_enabled(False)` rules what runs after it: where that ends is not looked for.
        self.switched = any(
            isinstance(node.value, ast.Call)
            and last_part(full_name(imports, node.value.func)) in _STATEMENTS
            and self._switches(node.value)
            for node in syntax.each(ast.Expr)
        )

    def off(self, node: ast.AST) -> bool:
        """Whether gradients are, or may be, off at `node`: by a block, a decorator, a framework, or a caller."""
        return self.switched or self._off(node, 4)

    def _off(self, node: ast.AST, depth: int) -> bool:
        for outer in self._all_around(node):
            if isinstance(outer, (ast.With, ast.AsyncWith)) and any(
                self._switches(each.context_expr) for each in outer.items
            ):
                return True
            if isinstance(outer, tree.FUNCTIONS) and self._function_off(outer, depth):
                return True
            if isinstance(outer, ast.ClassDef) and any(self._switches(each) for each in outer.decorator_list):
                return True
        return False

    def _all_around(self, node: ast.AST) -> list[ast.AST]:
        found = []
        while node in self._parents:
            node = self._parents[node]
            found.append(node)
        return found

    def _function_off(self, function: tree.Function, depth: int) -> bool:
        if function not in self._known:
            self._known[function] = False
            self._known[function] = (
                any(self._switches(each) for each in function.decorator_list)
                or self._functions.framework_without_gradients(function)
                or (depth > 0 and any(self._off(call, depth - 1) for call in self._functions.calls_of(function)))
            )
        return self._known[function]

    def _switches(self, node: ast.AST, depth: int = 3) -> bool:
        if isinstance(node, ast.IfExp):
            return self._switches(node.body, depth) or self._switches(node.orelse, depth)
        if isinstance(node, ast.Call):
            name = full_name(self._imports, node.func)
            if last_part(name) in _SWITCHES:
                # `set_grad_enabled(True)` switches them on.
                return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value is True) or (
                    last_part(name) in ("no_grad", "inference_mode")
                )
            if last_part(name) in ("enter_context", "partial") and node.args:
                return self._switches(node.args[0], depth)
            return self._switches(node.func, depth)
        name = full_name(self._imports, node)
        if not name:
            return False
        if last_part(name) in _SWITCHES:
            return True
        if depth:
            values = [each.value for each in self._bindings.reaching(name, node) if each.value is not None]
            if values:
                return any(self._switches(each, depth - 1) for each in values)
        return bool(_MAY_SWITCH.search(last_part(name))) and last_part(name) not in ("enable_grad", "autograd")
