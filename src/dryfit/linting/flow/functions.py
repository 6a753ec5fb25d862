"""The functions of a file: which one a call means, who calls it, and which ones a framework calls."""

from __future__ import annotations

import ast

from dryfit.linting.flow import tree
from dryfit.linting.flow.names import full_name, last_part

# Methods that Lightning calls with gradients off, and those of transformers' Trainer that are.
_LIGHTNING_WITHOUT_GRADIENTS = (
    "validation_", "test_", "predict_", "on_validation_", "on_test_", "on_predict_", "on_sanity_check_",
)  # fmt: skip
_TRAINER_WITHOUT_GRADIENTS = {"prediction_step", "prediction_loop", "evaluation_loop", "evaluate", "predict"}
LIGHTNING, TRAINER = "lightning", "transformers"


class Functions:
    """The functions of one file, by name and by class."""

    def __init__(self, syntax: tree.Syntax, imports: dict[str, str]) -> None:
        self._parents = syntax.parents
        self._imports = imports
        self.all: list[tree.Function] = syntax.each(*tree.FUNCTIONS)
        self.classes = {node.name: node for node in syntax.each(ast.ClassDef)}
        self._plain: dict[str, list[tree.Function]] = {}
        self._methods: dict[tuple[str, str], tree.Function] = {}
        for node in self.all:
            holder = self._parents.get(node)
            if isinstance(holder, ast.ClassDef):
                self._methods.setdefault((holder.name, node.name), node)
            else:
                self._plain.setdefault(node.name, []).append(node)
        self._calls: dict[tree.Function, list[ast.Call]] = {}
        self._called: dict[ast.Call, tree.Function | None] = {}
        names = {node.name for node in self.all}
        for call in syntax.each(ast.Call):
            called = self._find(call)
            self._called[call] = called
            if called is not None:
                self._calls.setdefault(called, []).append(call)
        heads = {call.func for call in self._called}
        self.passed_on = {
            name
            for node in syntax.each(ast.Name, ast.Attribute)
            if isinstance(node.ctx, ast.Load) and node not in heads
            if (name := node.id if isinstance(node, ast.Name) else node.attr) in names
        }

    def called(self, call: ast.Call) -> tree.Function | None:
        """The function of this file that a call runs: `f(...)`, or `self.f(...)` of its class or a base."""
        return self._called.get(call)

    def calls_of(self, function: tree.Function) -> list[ast.Call]:
        """The calls of a function in this file."""
        return self._calls.get(function, [])

    def _find(self, call: ast.Call) -> tree.Function | None:
        if isinstance(call.func, ast.Name):
            found = self._plain.get(call.func.id, [])
            return found[0] if len(found) == 1 else None
        if (
            isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id in ("self", "cls")
        ):
            holder = tree.class_of(self._parents, call)
            return None if holder is None else self.method(holder, call.func.attr)
        return None

    def method(self, holder: ast.ClassDef, name: str, depth: int = 4) -> tree.Function | None:
        """The method of a class of this file, or of its bases here."""
        found = self._methods.get((holder.name, name))
        if found is None and depth:
            for base in holder.bases:
                inner = self.classes.get(last_part(full_name(self._imports, base)))
                if inner is not None and inner is not holder:
                    found = found or self.method(inner, name, depth - 1)
        return found

    def framework_of(self, holder: ast.ClassDef | None, depth: int = 4) -> str:
        """LIGHTNING or TRAINER for a class that one of them runs; "" for others."""
        if holder is None or not depth:
            return ""
        for base in holder.bases:
            name = last_part(full_name(self._imports, base))
            if "LightningModule" in name:
                return LIGHTNING
            if name.endswith("Trainer") and name not in self.classes:
                return TRAINER
            inner = self.classes.get(name)
            if inner is not None and inner is not holder and (found := self.framework_of(inner, depth - 1)):
                return found
        methods = {each.name for each in holder.body if isinstance(each, tree.FUNCTIONS)}
        if "training_step" in methods and methods & {"validation_step", "configure_optimizers"}:
            return LIGHTNING
        return ""

    def framework_without_gradients(self, function: tree.Function) -> bool:
        """Whether a framework calls this method with gradients switched off."""
        holder = self._parents.get(function)
        if not isinstance(holder, ast.ClassDef):
            return False
        framework = self.framework_of(holder)
        if framework == LIGHTNING:
            return function.name.startswith(_LIGHTNING_WITHOUT_GRADIENTS)
        return framework == TRAINER and function.name in _TRAINER_WITHOUT_GRADIENTS
