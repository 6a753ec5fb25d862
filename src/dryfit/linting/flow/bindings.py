"""Which assignments a name may come from at a place of its function."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator

from dryfit.linting.flow import tree
from dryfit.linting.flow.assignments import Binding, of_parameters, of_statement
from dryfit.linting.flow.names import prefixes

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Bindings:
    """All bindings of a file, asked by name and place."""

    def __init__(self, syntax: tree.Syntax) -> None:
        self._parents = syntax.parents
        self._at: dict[ast.AST, list[Binding]] = {}
        self._bound_in: dict[ast.AST, set[str]] = {}
        self._by_scope: dict[ast.AST | None, dict[str, list[Binding]]] = {}
        self._reaching: dict[tuple[str, ast.AST], tuple[Binding, ...]] = {}
        for kind in syntax.nodes:
            if issubclass(kind, ast.stmt):
                for statement in syntax.each(kind):
                    self._add(statement, list(of_statement(statement)))
        for function in syntax.each(*tree.FUNCTIONS):
            for each in of_parameters(function):
                self._by_scope.setdefault(function, {}).setdefault(each.name, []).append(each)

    def _add(self, statement: ast.stmt, bindings: list[Binding]) -> None:
        self._at[statement] = bindings
        scope = tree.function_of(self._parents, statement)
        for each in bindings:
            self._by_scope.setdefault(scope, {}).setdefault(each.name, []).append(each)
            node: ast.AST = statement
            while node in self._parents:
                self._bound_in.setdefault(node, set()).add(each.name)
                node = self._parents[node]
                if isinstance(node, (*tree.FUNCTIONS, ast.ClassDef)):
                    break

    def everywhere(self, name: str) -> list[Binding]:
        """The bindings of a name in all functions of the file."""
        return [each for scope in self._by_scope.values() for each in scope.get(name, ())]

    def in_function(self, function: ast.AST | None, name: str) -> list[Binding]:
        """The bindings of a name in one function, or at the top of the file."""
        return self._by_scope.get(function, {}).get(name, [])

    def assigned_in(self, function: ast.AST, name: str) -> bool:
        """Whether a function gives its parameter another value."""
        return any(each.how != "parameter" for each in self.in_function(function, name))

    def reaching(self, name: str, at: ast.AST) -> tuple[Binding, ...]:
        """Those that `name` may come from where `at` stands; of the functions around, if its own has none.

        `a.b` comes from assignments to `a.b` or to `a`; one loop around means the assignments after it count as well.
        """
        statement = tree.statement_of(self._parents, at)
        key = (name, statement)
        if key not in self._reaching:
            found = list(dict.fromkeys(self._walk_back(prefixes(name), statement)))
            if "." in name and any(each.how != "parameter" for each in found):
                found = [each for each in found if each.name != "self"]
            self._reaching[key] = tuple(found)
        return self._reaching[key]

    def _walk_back(self, names: list[str], statement: ast.stmt) -> Iterator[Binding]:
        while True:
            block = tree.block_around(self._parents, statement)
            position = next(index for index, each in enumerate(block) if each is statement)
            if (yield from self._through(names, block[:position])):
                return
            parent = self._parents.get(statement)
            if isinstance(parent, tree.LOOPS):
                bound = [each for each in self._at[parent] if each.name in names]
                yield from bound
                if bound:
                    return
                yield from self._through(names, block[position:])
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                bound = [each for each in self._at[parent] if each.name in names]
                yield from bound
                if bound:
                    return
            if isinstance(parent, (ast.ExceptHandler, ast.Try)):
                attempt = self._parents[parent] if isinstance(parent, ast.ExceptHandler) else parent
                if isinstance(attempt, ast.Try) and block is not attempt.body:
                    definite = yield from self._through(names, attempt.body)
                    if definite and block is attempt.orelse:
                        return
            while parent is not None and not isinstance(parent, (ast.stmt, ast.Module)):
                parent = self._parents.get(parent)
            if isinstance(parent, tree.FUNCTIONS):
                yield from self._outside(names, parent)
                return
            if parent is None or isinstance(parent, (ast.Module, ast.ClassDef)):
                return
            statement = parent

    def _outside(self, names: list[str], function: tree.Function) -> Iterator[Binding]:
        own = [each for name in names for each in self.in_function(function, name) if each.how == "parameter"]
        yield from own
        # A name that the function only adds to is one of a function around it: nonlocal, or global.
        if own or any(each.how != "add" for name in names for each in self.in_function(function, name)):
            return
        outer: ast.AST | None = function
        while outer is not None:
            outer = tree.function_of(self._parents, outer)
            found = [each for name in names for each in self.in_function(outer, name)]
            yield from found
            if found:
                return

    def _through(self, names: list[str], block: list[ast.stmt]) -> Generator[Binding, None, bool]:
        for statement in reversed(block):
            if (yield from self._in(names, statement)):
                return True
        return False

    def _in(self, names: list[str], statement: ast.stmt) -> Generator[Binding, None, bool]:
        if not any(name in self._bound_in.get(statement, ()) for name in names):
            return False
        own = [each for each in self._at[statement] if each.name in names]
        if isinstance(statement, ast.If):
            branches = []
            for block in (statement.body, statement.orelse):
                definite = yield from self._through(names, block)
                branches.append(definite or (bool(block) and isinstance(block[-1], _LEAVES)))
            yield from own
            return all(branches) or bool(own)
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            definite = yield from self._through(names, statement.body)
            yield from own
            return definite or bool(own)
        if isinstance(statement, (*tree.FUNCTIONS, ast.ClassDef)):
            yield from own
            return bool(own)
        if isinstance(statement, (*tree.LOOPS, ast.Try)) or any(tree.blocks_of(statement)):
            for block in tree.blocks_of(statement):
                yield from self._through(names, block)
            yield from own
            return False
        yield from own
        return any(each.how != "add" for each in own)
