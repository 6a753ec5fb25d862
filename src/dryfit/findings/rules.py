"""Everything dryfit can find, each with its code and its name.

Codes are never used again for something else. The hundreds are: 1 memory that grows from step to step, 2 evaluation,
3 a training loop that does something else than it says, 4 memory that is taken for no use, 5 out-of-memory errors.
"""

from __future__ import annotations

from dataclasses import dataclass

LINT, WATCH, EXPLAIN = "lint", "watch", "explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A kind of finding. `seen_by` says what can find it: the source, a run (real or rehearsed), or an error's text.

    `title` is a sentence that stands for any finding of this kind.
    """

    code: str
    name: str
    title: str
    seen_by: frozenset[str]


def _rule(code: str, name: str, title: str, *seen_by: str) -> Rule:
    return Rule(code=code, name=name, title=title, seen_by=frozenset(seen_by))


RULES: tuple[Rule, ...] = (
    _rule("DF101", "loss-kept-with-graph", "A loss is summed or kept together with its graph.", LINT, WATCH),
    _rule("DF102", "outputs-collected", "A list keeps tensors of every step, or their graphs.", LINT, WATCH),
    _rule("DF103", "metric-keeps-graph", "A metric's state is attached to the graph of each step.", WATCH),
    _rule("DF104", "state-carried-with-graph", "A hidden state carries the graph of all steps before.", WATCH),
    _rule("DF105", "graph-retained", "backward keeps the graph, and it is kept from step to step.", LINT, WATCH),
    _rule("DF106", "tensor-on-ctx", "An autograd Function keeps tensors on ctx, outside of save_for_backward.", WATCH),
    _rule("DF107", "hook-keeps-features", "A hook keeps what passes through a module at every step.", WATCH),
    _rule("DF108", "input-requires-grad", "Inputs that require gradients are kept with them.", WATCH),
    _rule("DF109", "exception-keeps-frames", "A caught exception keeps the variables of the functions it left.", WATCH),
    _rule(
        "DF110",
        "optimizer-made-anew",
        "An optimizer is made anew for the same parameters while the old one lives.",
        WATCH,
    ),
    _rule("DF111", "dataset-on-device", "The whole dataset is moved to the card.", LINT, WATCH),
    _rule(
        "DF112",
        "autocast-around-the-loop",
        "One autocast region lasts over optimizer steps, with its cached copies.",
        LINT,
        WATCH,
    ),
    _rule(
        "DF113",
        "create-graph-cycle",
        "backward with create_graph=True leaves gradients that keep their graph.",
        LINT,
        WATCH,
    ),
    _rule("DF114", "memory-grows", "Each step leaves more on the card than the one before.", WATCH, EXPLAIN),
    _rule("DF115", "host-memory-grows", "Each step leaves more in the host's memory than the one before.", WATCH),
    _rule(
        "DF201",
        "evaluation-with-graph",
        "An evaluation builds the graph of a backward pass that never comes.",
        LINT,
        WATCH,
    ),
    _rule("DF202", "predictions-on-device", "An evaluation collects its outputs on the card.", LINT, WATCH, EXPLAIN),
    _rule("DF301", "loss-not-divided", "Gradients are accumulated, and the loss is not divided.", LINT),
    _rule("DF302", "clip-before-unscale", "Gradients are clipped while they are still scaled.", LINT),
    _rule("DF303", "scheduler-per-micro-batch", "The learning rate's schedule moves at each micro-batch.", LINT, WATCH),
    _rule(
        "DF304",
        "zero-grad-after-backward",
        "Gradients are cleared between backward and the optimizer's step.",
        LINT,
        WATCH,
    ),
    _rule("DF305", "no-sync-around-backward-only", "no_sync does nothing around backward alone.", LINT),
    _rule("DF401", "reentrant-checkpoint", "Checkpointing is reentrant, or does not say.", LINT),
    _rule("DF402", "cache-with-checkpointing", "use_cache is on while blocks are checkpointed.", LINT),
    _rule("DF403", "empty-cache-in-loop", "empty_cache is called at every step.", LINT, WATCH),
    _rule("DF404", "data-parallel", "DataParallel gathers outputs and gradients on the first card.", LINT),
    _rule("DF405", "device-in-worker", "A dataset moves its samples to the card inside the loader's workers.", LINT),
    _rule("DF406", "gradients-kept-whole", "Micro-batches add up gradients of shards, and keep them whole.", WATCH),
    _rule("DF407", "gradients-beside-buckets", "Gradients lie beside DDP's buckets, which hold them too.", WATCH),
    _rule("DF408", "sharding-saves-little", "Most of the peak is made of the batch, which FSDP does not share.", WATCH),
    _rule("DF501", "too-big", "The program needs more than the card has.", EXPLAIN),
    _rule("DF502", "fragmentation", "There is room, in pieces that are too small.", EXPLAIN),
    _rule("DF503", "another-process", "Another process has the card's memory.", EXPLAIN),
    _rule("DF504", "limited", "A limit that was set forbids what the card could give.", EXPLAIN),
    _rule("DF505", "outside-the-allocator", "Memory ran out outside of PyTorch's allocator.", EXPLAIN),
    _rule("DF506", "host-memory", "The host's memory ran out, not the card's.", EXPLAIN),
    _rule("DF507", "out-of-memory-without-numbers", "Memory ran out, and the text does not say how.", EXPLAIN),
    _rule("DF508", "likely-out-of-memory", "A library could not start, most likely for lack of memory.", EXPLAIN),
    _rule("DF509", "not-out-of-memory", "The text speaks of memory, and memory is not the cause.", EXPLAIN),
)

_BY_WORD = {word: rule for rule in RULES for word in (rule.code, rule.name)}


def rule_of(word: str) -> Rule | None:
    """The rule of a code or a name; None if there is none.

    >>> rule_of("DF101").name, rule_of("loss-kept-with-graph").code
    ('loss-kept-with-graph', 'DF101')
    """
    return _BY_WORD.get(word) or _BY_WORD.get(word.upper()) or _BY_WORD.get(word.lower())
