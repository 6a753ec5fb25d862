"""One rank of a distributed run: what `torchrun` would have told it, and which ranks are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dryfit.errors import UsageError

_CARDS_OF_A_NODE = 8
_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A rank, of `size` on `nodes` machines with equally many cards.

    >>> world = world_of(64)
    >>> world.nodes, world.cards_of_a_node, world.with_rank(9).local_rank
    (8, 8, 1)
    """

    size: int
    nodes: int = 1
    rank: int = 0

    @property
    def cards_of_a_node(self) -> int:
        return self.size // self.nodes

    @property
    def local_rank(self) -> int:
        return self.rank % self.cards_of_a_node

    def with_rank(self, rank: int) -> World:
        return World(size=self.size, nodes=self.nodes, rank=rank)

    def variables(self) -> dict[str, str]:
        """The environment that torchrun gives to this rank; elastic's, so that nobody starts the other ranks.

        The port is never opened: the rank's store answers for everybody (`inside.alone`).
        """
        node = self.rank // self.cards_of_a_node
        numbers = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.cards_of_a_node,
            "GROUP_RANK": node,
            "NODE_RANK": node,
            "GROUP_WORLD_SIZE": self.nodes,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.size,
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        words = {"MASTER_ADDR": "127.0.0.1", "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "none"}
        return {name: str(number) for name, number in numbers.items()} | words


def world_of(size: int, nodes: int | None = None) -> World:
    """A world of `size` ranks; on machines with eight cards where nothing else is said and eight divide it.

    Raises:
        UsageError: no world has such a size, or these nodes would not have equally many cards.
    """
    from dryfit.virtual_card.settings import MAX_DEVICES  # here: every process of a rehearsal reads a `World` first

    if not 1 <= size <= _MOST_RANKS:
        raise UsageError(f"--world {size}: a world has 1 to {_MOST_RANKS} ranks, one for each card.")
    if nodes is None:
        whole_nodes = size > _CARDS_OF_A_NODE and size % _CARDS_OF_A_NODE == 0
        nodes = size // _CARDS_OF_A_NODE if whole_nodes else 1
    if nodes < 1 or size % nodes:
        raise UsageError(
            f"--world {size} --nodes {nodes}: {size} ranks cannot be shared out equally among {nodes} nodes; every "
            "node has as many cards as the others."
        )
    if size // nodes > MAX_DEVICES:
        raise UsageError(
            f"--world {size} --nodes {nodes}: a node would have {size // nodes} cards, and {MAX_DEVICES} is the most; "
            "say with --nodes how many machines there are."
        )
    return World(size=size, nodes=nodes)


def check_cards(cards: int | None, worlds: Sequence[int]) -> None:
    """See that `cards` are not given beside worlds of these sizes.

    Raises:
        UsageError: they are.
    """
    if cards is not None and worlds:
        sizes = ",".join(map(str, worlds))
        raise UsageError(f"--cards {cards} --world {sizes}: the world says how many cards there are; leave one out.")


def ranks_of(text: str, world: World) -> list[int]:
    """The ranks that `--ranks` names, each once: numbers, `last`, ranges, or `all`.

    >>> ranks_of("0,last", world_of(8)), ranks_of("2-4", world_of(8))
    ([0, 7], [2, 3, 4])

    Raises:
        UsageError: not a rank, or none of this world.
    """
    if text.strip() == "all":
        return list(range(world.size))
    found: dict[int, None] = {}
    for word in (part.strip() for part in text.split(",")):
        first, dash, last = word.partition("-")
        ends = [_rank(each, text, world) for each in ((first, last) if first and dash else (word,))]
        if ends[0] > ends[-1]:
            raise UsageError(f"--ranks {text}: {word} ends before it begins.")
        found |= dict.fromkeys(range(ends[0], ends[-1] + 1))
    return list(found)


def _rank(word: str, text: str, world: World) -> int:
    if word == "last":
        return world.size - 1
    if not word.isdecimal():
        raise UsageError(f"--ranks {text}: {word!r} is no rank; write numbers, `last` or `all`, as in --ranks 0,last.")
    if int(word) >= world.size:
        raise UsageError(
            f"--ranks {text}: there is no rank {word} in a world of {world.size}; they are numbered from 0 to "
            f"{world.size - 1}."
        )
    return int(word)
