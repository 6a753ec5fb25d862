"""All that the rules know of one source file."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from dryfit.findings import Evidence, Finding, Place
from dryfit.linting.flow import tree
from dryfit.linting.flow.backward import Backward, backwards_of
from dryfit.linting.flow.bindings import Bindings
from dryfit.linting.flow.evaluation import EvaluationForward, evaluation_forwards
from dryfit.linting.flow.functions import Functions
from dryfit.linting.flow.grad_mode import GradMode
from dryfit.linting.flow.names import full_name, imports_of, last_part, reference
from dryfit.linting.flow.objects import Kind, kinds_of, module_classes
from dryfit.linting.flow.tensors import Tensors
from dryfit.linting.flow.training import Accumulation, Step, accumulations_of, steps_of

# As Python's tokenizer counts lines; str.splitlines knows more line ends.
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One file, read: its tree, and where it walks back, steps, accumulates and evaluates."""

    file: str
    lines: tuple[str, ...]
    syntax: tree.Syntax
    parents: tree.Parents
    imports: dict[str, str]
    bindings: Bindings
    functions: Functions
    grad_mode: GradMode
    kinds: dict[str, Kind]
    modules: dict[str, ast.ClassDef]
    tensors: Tensors
    backwards: tuple[Backward, ...]
    steps: tuple[Step, ...]
    accumulations: tuple[Accumulation, ...]
    evaluations: tuple[EvaluationForward, ...]
    calls: tuple[ast.Call, ...]

    @classmethod
    def of(cls, module: ast.Module, source: str, file: str) -> Flow:
        """Reads a file's tree."""
        syntax = tree.walk_once(module)
        parents = syntax.parents
        imports = imports_of(syntax)
        bindings = Bindings(syntax)
        functions = Functions(syntax, imports)
        grad_mode = GradMode(syntax, imports, bindings, functions)
        modules = module_classes(syntax, imports)
        kinds = kinds_of(syntax, imports, modules)
        tensors = Tensors(parents, imports, bindings, functions, grad_mode, kinds, modules)
        backwards = backwards_of(syntax, imports, functions)
        steps = steps_of(syntax, kinds)
        return cls(
            file=file,
            lines=tuple(_LINE_ENDS.split(source)),
            syntax=syntax,
            parents=parents,
            imports=imports,
            bindings=bindings,
            functions=functions,
            grad_mode=grad_mode,
            kinds=kinds,
            modules=modules,
            tensors=tensors,
            backwards=tuple(backwards),
            steps=tuple(steps),
            accumulations=tuple(accumulations_of(parents, bindings, steps)),
            evaluations=tuple(evaluation_forwards(syntax, tensors, backwards)),
            calls=tuple(syntax.each(ast.Call)),
        )

    def name(self, node: ast.AST | None) -> str:
        """What a chain of names stands for after the imports: `F.mse_loss` -> `torch.nn.functional.mse_loss`."""
        return full_name(self.imports, node)

    def kind(self, node: ast.AST | None) -> Kind | None:
        """What the object named there is for."""
        return self.kinds.get(reference(node))

    def function(self, node: ast.AST) -> tree.Function | None:
        """The function whose body `node` runs in."""
        return tree.function_of(self.parents, node)

    def loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop that repeats `node`."""
        return tree.loop_of(self.parents, node)

    def within(self, node: ast.AST, outer: ast.AST | None) -> bool:
        """Whether `node` lies in `outer`."""
        return tree.within(self.parents, node, outer)

    def scope(self, node: ast.AST) -> ast.AST:
        """The function around `node`, or the whole file."""
        return self.function(node) or self.syntax.module

    def called_without_gradients(self) -> frozenset[str]:
        """The functions that this file calls with gradients off and does not define."""
        return frozenset(
            last_part(reference(each.func))
            for each in self.calls
            if reference(each.func) and self.functions.called(each) is None and self.grad_mode.off(each)
        )

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        line, end_line = node.lineno, getattr(node, "end_lineno", None) or node.lineno  # type: ignore[attr-defined]
        return Place(
            file=self.file,
            line=line,
            column=self._column(line, node.col_offset),  # type: ignore[attr-defined]
            end_line=end_line,
            end_column=self._column(end_line, getattr(node, "end_col_offset", None) or 0),
            function=tree.qualified_name(self.parents, node),
            text=self.lines[line - 1].strip(),
        )

    def _column(self, line: int, offset: int) -> int:
        # The tree counts UTF-8 bytes from 0; a person counts characters from 1.
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1

    def finding(
        self,
        code: str,
        node: ast.AST,
        claim: str,
        advice: str,
        *more: ast.AST,
        memory: str = "device",
        holder: str = "",
    ) -> Finding:
        """A finding at `node`; `more` are the other nodes that belong to it."""
        return Finding(
            code=code,
            claim=claim,
            advice=advice,
            place=self.place(node),
            more_places=tuple(self.place(each) for each in more),
            evidence=Evidence(memory=memory, holder=holder),
        )
