"""What a measure is: what it does and changes, when it applies, how it is switched on, and how a person writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dryfit.measures.facts import Facts
from dryfit.measures.moments import Moments

# What a measure changes in what is computed. NOTHING: results are the same up to the order of rounding. PRECISION: the
# same method, with numbers of fewer bits. METHOD: something else is trained, or by another rule.
NOTHING, PRECISION, METHOD = "nothing", "precision", "method"
CHANGES = (NOTHING, PRECISION, METHOD)

# Ways in which a program trains, each with a snippet of its own where it is written in another way.
PYTORCH, TRANSFORMERS, LIGHTNING, ACCELERATE = "pytorch", "transformers", "lightning", "accelerate"
WAYS = (PYTORCH, TRANSFORMERS, LIGHTNING, ACCELERATE)
# Not a way to train, but what is trained: a model of transformers has some built in, whoever's loop it is.
TRANSFORMERS_MODEL = "transformers model"


def _no_options(_: Facts) -> Sequence[str]:
    return ("",)


def _no_variables(_: Mapping[str, str], __: str) -> dict[str, str]:
    return {}


def _no_caution(_: Facts) -> str:
    return ""


def _nothing_to_switch(_: Moments, __: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One measure. Each of the files here defines one, or a few that are alike.

    `name` is what `dryfit run --with NAME` calls it, `title` what a table does, `what` says in one sentence what it
    does and why that takes less memory. Of the measures of one `group` only one can be on at a time.

    `changes(facts)` is NOTHING, PRECISION or METHOD, for this program. `why_not(facts)` says in a sentence why the
    measure does not apply to a program, or is "". `options(facts)` are the strengths in which it can be had, the
    cheapest first, and each taking less memory than the one before; ("",) for a measure that is on or off.

    `switch_on(moments, option)` switches it on in a process that has imported torch, before the program has done
    anything with it. `variables(environment, option)` are environment variables to start the program with.

    `snippets` say how a person writes it, by way of training; "pytorch" is always there, and "transformers model" where
    a model of transformers has it built in. `{option}` stands for the option, `{blocks}` for the class of the model's
    repeated blocks, `{units}` for that of what is sharded one at a time, see `Facts.units`. `needs` are the packages to
    install, with blanks between. `takes_long` says why a plan does not rehearse it unless it is asked to. `not_counted`
    says what it costs beyond counted FLOPs, and bytes over the host's bus and to other ranks; `caution(facts)` what
    else is to be known of it in a program. All of these are "" where there is none. `is_uneven` says that ranks may
    come to hold unequally much.
    """

    name: str
    title: str
    what: str
    group: str
    snippets: Mapping[str, str]
    why_not: Callable[[Facts], str]
    changes: Callable[[Facts], str]
    switch_on: Callable[[Moments, str], None] = _nothing_to_switch
    variables: Callable[[Mapping[str, str], str], Mapping[str, str]] = _no_variables
    options: Callable[[Facts], Sequence[str]] = _no_options
    not_counted: str = ""
    needs: str = ""
    takes_long: str = ""
    caution: Callable[[Facts], str] = _no_caution
    # Names of measures that it does not go together with, beyond those of its own group.
    without: frozenset[str] = field(default_factory=frozenset)
    is_uneven: bool = False

    def snippet(
        self,
        way: str,
        option: str = "",
        blocks: str = "Block",
        *,
        units: str = "Block",
        of_transformers_model: bool = False,
    ) -> str:
        """How a person who trains in this way writes it; of a model of transformers, or of any."""
        kinds = [way] if way != PYTORCH else []
        kinds += [TRANSFORMERS_MODEL] if of_transformers_model else []
        text = next((self.snippets[kind] for kind in kinds if kind in self.snippets), self.snippets[PYTORCH])
        return text.replace("{option}", option).replace("{blocks}", blocks).replace("{units}", units).strip("\n")


def changes_nothing(_: Facts) -> str:
    """For a measure after which results are the same up to the order of rounding, in any program."""
    return NOTHING


def changes_precision(_: Facts) -> str:
    """For a measure that computes or keeps numbers with fewer bits."""
    return PRECISION


def changes_method(_: Facts) -> str:
    """For a measure that trains something else, or by another rule."""
    return METHOD
