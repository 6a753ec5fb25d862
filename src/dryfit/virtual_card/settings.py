"""What the C library is told about the card, through one environment variable."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, cast, get_args

from dryfit.errors import UsageError

if TYPE_CHECKING:
    from dryfit.cards import Card

AddressOrder = Literal["linux", "up", "down"]
ADDRESS_ORDERS: tuple[AddressOrder, ...] = get_args(AddressOrder)
VARIABLE = "DRYFIT_VIRTUAL_CARD"
MAX_DEVICES = 64  # c/card.h has room for so many


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSettings:
    """The card a program is to see.

    >>> CardSettings(name="NVIDIA L4", sm=89, sms=58, memory_bytes=24 << 30).text()
    'name=NVIDIA L4;sm=89;sms=58;memory_bytes=25769803776;outside_bytes=0;count=1;order=linux;alone=0;wait_seconds=600'

    `name` is what nvidia-smi and `torch.cuda.get_device_name` show, `sm` the compute capability (89 for 8.9), `sms` the
    number of multiprocessors. Of `memory_bytes`, the total, the CUDA context takes `outside_bytes` from the start.
    `order` is how addresses are handed out: as the Linux driver does, upwards or downwards. `alone` makes this process
    the only one of its distributed world; otherwise ranks wait up to `wait_seconds` for each other. What is None is
    left to the library: `threads_per_sm` follows from `sm`, and `environment` reads `cuda` and `cudnn` from the
    installed torch.

    Raises:
        UsageError: a value that no card can have.
    """

    name: str
    sm: int
    sms: int
    memory_bytes: int
    outside_bytes: int = 0
    threads_per_sm: int | None = None
    l2_bytes: int | None = None
    count: int = 1
    order: AddressOrder = "linux"
    cuda: int | None = None
    cudnn: int | None = None
    alone: bool = False
    wait_seconds: int = 600

    def __post_init__(self) -> None:
        if ";" in self.name or len(self.name.encode()) > 127:
            raise UsageError(f"A card cannot be named {self.name!r}: at most 127 bytes, and no semicolon.")
        if self.order not in ADDRESS_ORDERS:
            raise UsageError(
                f"Addresses cannot be handed out in the order {self.order!r}; there are linux, up and down."
            )
        if not 1 <= self.count <= MAX_DEVICES:
            raise UsageError(f"A machine with {self.count} virtual cards cannot be made: 1 to {MAX_DEVICES} can.")
        if not 0 <= self.outside_bytes < self.memory_bytes:
            raise UsageError(
                f"A card with {self.memory_bytes} bytes of memory, of which the CUDA context takes "
                f"{self.outside_bytes}, has nothing left for a program."
            )
        if self.sm < 50 or self.sms < 1:
            raise UsageError(
                f"No card has compute capability sm={self.sm} and {self.sms} multiprocessors; "
                "sm is written without its point, 89 for 8.9."
            )

    def text(self) -> str:
        """These settings as the C library reads them."""
        pairs = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                pairs.append(f"{field.name}={int(value) if isinstance(value, bool) else value}")
        return ";".join(pairs)


def settings_of(card: Card, *, address_order: str = "linux", count: int = 1, alone: bool = False) -> CardSettings:
    """The settings of a card from the catalogue, on a machine with `count` of them.

    >>> from dryfit.cards import find_card
    >>> settings_of(find_card("4090")).name
    'NVIDIA GeForce RTX 4090'

    Raises:
        UsageError: there is no such order, or a card of so little memory that nothing is left for a program.
    """
    return CardSettings(
        name=card.name,
        sm=card.sm,
        sms=card.sm_count,
        threads_per_sm=card.max_threads_per_sm,
        l2_bytes=card.l2_bytes or None,
        memory_bytes=card.total_bytes,
        outside_bytes=card.outside_bytes,
        count=count,
        alone=alone,
        order=cast(AddressOrder, address_order),  # checked above
    )
