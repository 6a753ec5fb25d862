"""What the virtual card in front of this process counted, and the answers it is to give."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, fields

from dryfit.errors import UsageError
from dryfit.virtual_card.settings import MAX_DEVICES

RECEIVED_ALONE = "ncclRecv"  # of `unfaithful_calls`: a rank that plays alone received from another


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)  # whatever is in front of this process
    if not hasattr(library, "dryfit_is_virtual_card"):
        raise UsageError(
            "No virtual card is in front of this process, so there is nothing to ask it. Start the program with "
            "`dryfit run`, or call dryfit.virtual(...) before torch is imported."
        )
    sizes = (
        "used_bytes", "peak_used_bytes", "most_used_bytes", "take_peak_used_bytes",
        "unfaithful_calls", "workspaces", "looks_at_card",
    )  # fmt: skip
    for name in sizes:
        getattr(library, f"dryfit_{name}").restype = ctypes.c_size_t
    library.dryfit_unfaithful_calls.argtypes = [ctypes.c_size_t, ctypes.POINTER(ctypes.c_char_p)]
    library.dryfit_workspaces.argtypes = [ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
    library.dryfit_workspaces_in_doubt.argtypes = [ctypes.POINTER(ctypes.c_size_t)]
    library.dryfit_workspaces_in_doubt.restype = None
    library.dryfit_guessed.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)]
    library.dryfit_guessed.restype = ctypes.c_char_p
    library.dryfit_traffic.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)]
    library.dryfit_traffic.restype = ctypes.c_char_p
    library.dryfit_nccl_bytes.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)]
    library.dryfit_nccl_bytes.restype = None
    library.dryfit_communicator.argtypes = [ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
    library.dryfit_answer.argtypes = [ctypes.c_int64]
    library.dryfit_plays_alone.restype = ctypes.c_bool
    library.dryfit_is_device.argtypes = [ctypes.c_void_p]
    library.dryfit_pass_over_random_words.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def used_bytes(device: int = 0) -> int:
    """Bytes of the card that this process holds now, as the driver counts them, without the CUDA context."""
    return int(_library().dryfit_used_bytes(device))


def peak_used_bytes(device: int = 0) -> int:
    """The most that `used_bytes` has been, since the start or since `reset_peak_used`."""
    return int(_library().dryfit_peak_used_bytes(device))


def reset_peak_used(device: int = 0) -> None:
    """Begin a new peak at what is used now."""
    _library().dryfit_reset_peak_used(device)


def take_peak_used_bytes() -> int:
    """The highest `peak_used_bytes` of all devices; a new peak begins on each of them."""
    return int(_library().dryfit_take_peak_used_bytes())


def unfaithful_calls() -> dict[str, int]:
    """CUDA calls that were made and have no faithful answer, by name, with how often; empty means an exact answer.

    >>> unfaithful_calls()  # doctest: +SKIP
    {'cudnnBackendGetAttribute(EXECUTION_PLAN_WORKSPACE_SIZE)': 12}
    """
    calls: dict[str, int] = {}
    name = ctypes.c_char_p()
    i = 0
    while count := _library().dryfit_unfaithful_calls(i, ctypes.byref(name)):
        calls[(name.value or b"").decode()] = count
        i += 1
    return calls


def workspaces() -> list[tuple[int, int]]:
    """Addresses and sizes, in bytes, of the memory that cuBLAS and cuBLASLt were given to work in, each once."""
    found: list[tuple[int, int]] = []
    address = ctypes.c_size_t()
    while size_bytes := _library().dryfit_workspaces(len(found), ctypes.byref(address)):
        found.append((address.value, int(size_bytes)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """Workspaces of cuDNN's plans that have run: how many, and what is not known of them.

    A convolution may take up to `less_bytes` less or `more_bytes` more than it was given: one whose plan is
    `on_a_card_only`, one where the next plan was taken in place of such a one (`next_taken`), or one for which torch
    has `timed` several (`torch.backends.cudnn.benchmark`). For those of `first_unknown` cuDNN ranks a plan first that
    it does not offer without a card, and nothing is known of that. Those that are `not_answered` may take as much as
    their three tensors together.
    """

    plans: int
    less_bytes: int
    more_bytes: int
    on_a_card_only: int
    next_taken: int
    timed: int
    first_unknown: int
    not_answered: int


def workspaces_in_doubt() -> Workspaces:
    """What is known of the workspaces of the plans that have run in this process."""
    found = (ctypes.c_size_t * len(fields(Workspaces)))()
    _library().dryfit_workspaces_in_doubt(found)
    return Workspaces(**{field.name: int(value) for field, value in zip(fields(Workspaces), found, strict=True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What one device has given this process: the most at once that `used_bytes` has been, and NCCL's range.

    `device` is CUDA's number, `board` that of nvidia-smi.
    """

    device: int
    board: int
    most_used_bytes: int
    nccl_low_bytes: int
    nccl_expected_bytes: int
    nccl_high_bytes: int


def devices_in_use() -> list[DeviceUse]:
    """The devices on which this process has, or had, memory: there it has a CUDA context too."""
    library, found = _library(), []
    nccl = (ctypes.c_size_t * 3)()
    for device in range(MAX_DEVICES):
        library.dryfit_nccl_bytes(device, nccl)
        low, expected, high = map(int, nccl)
        most = int(library.dryfit_most_used_bytes(device))
        if most or high:
            use = DeviceUse(
                device=device,
                board=library.dryfit_board_of(device),
                most_used_bytes=most,
                nccl_low_bytes=low,
                nccl_expected_bytes=expected,
                nccl_high_bytes=high,
            )
            found.append(use)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """One communicator of NCCL that this process made, as rank `rank` of `ranks` on `nodes` machines.

    `collectives` is how many collective calls it made, `local_peers` and `remote_peers` how many ranks it sent to or
    received from. Its buffers are those of `c/nccl_buffers.c`.
    """

    ranks: int
    rank: int
    nodes: int
    device: int
    collectives: int
    local_peers: int
    remote_peers: int
    low_bytes: int
    expected_bytes: int
    high_bytes: int


def communicators() -> list[Communicator]:
    """Every communicator of NCCL that this process made, those it destroyed too."""
    made: list[Communicator] = []
    found = (ctypes.c_size_t * len(fields(Communicator)))()
    while _library().dryfit_communicator(len(made), found):
        made.append(Communicator(**{f.name: int(value) for f, value in zip(fields(Communicator), found, strict=True)}))
    return made


def is_rank(rank: int) -> None:
    """This process is so called in its world: what NCCL's calls say of a rank that does not come names it so."""
    _library().dryfit_is_rank(rank)


def traffic() -> dict[str, tuple[int, int, int]]:
    """What NCCL has passed so far, by kind: calls, bytes of payload, and bytes that this rank sends to others.

    The last are those of a ring, see `c/traffic.c`.

    >>> traffic()  # doctest: +SKIP
    {'all-reduce': (4, 134283264, 234995712)}
    """
    found: dict[str, tuple[int, int, int]] = {}
    numbers = (ctypes.c_size_t * 3)()
    i = 0
    while name := _library().dryfit_traffic(i, numbers):
        calls, payload_bytes, sent_bytes = map(int, numbers)
        if calls:
            found[name.decode()] = (calls, payload_bytes, sent_bytes)
        i += 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessed:
    """Memory that one kind of library asks for and nobody can tell without a card: how often it asked.

    The peak of tensors may be up to `less_bytes` lower or `more_bytes` higher by it.
    """

    kind: str
    calls: int
    less_bytes: int
    more_bytes: int


def guessed() -> list[Guessed]:
    """The kinds that this process has asked for.

    >>> guessed()  # doctest: +SKIP
    [Guessed(kind='recurrent networks', calls=6, less_bytes=1052672, more_bytes=3407872)]
    """
    found: list[Guessed] = []
    numbers = (ctypes.c_size_t * 3)()
    i = 0
    while name := _library().dryfit_guessed(i, numbers):
        calls, less_bytes, more_bytes = map(int, numbers)
        if calls:
            found.append(Guessed(kind=name.decode(), calls=calls, less_bytes=less_bytes, more_bytes=more_bytes))
        i += 1
    return found


def answer(value: int) -> None:
    """Make `value` the next integer that CUDA code reads from the card in this thread, after those given before."""
    _library().dryfit_answer(value)


def forget() -> None:
    """Drop the answers of this thread that were not read."""
    _library().dryfit_forget()


def looks_at_card() -> int:
    """How often a call has depended on which card it is; from the first on, the environment no longer decides that."""
    return int(_library().dryfit_looks_at_card())


def let_forks_go_on(whether: bool) -> None:
    """Whether forks of this process may use CUDA as this process would have, though torch has asked for its cards.

    As on a real card they may not unless they are told so; each goes on by the same rule as this process.
    """
    _library().dryfit_let_forks_go_on(int(whether))


def plays_alone() -> bool:
    """Whether this process is one rank of many, and the others are not there: the card answers as if all were alike."""
    return bool(_library().dryfit_plays_alone())


def is_device(address: int) -> bool:
    """Whether this is an address on the card."""
    return bool(_library().dryfit_is_device(address))


def pass_over_random_words(state_address: int, count: int) -> None:
    """Move the state of a torch CPU generator, the bytes of its `get_state`, on by 32-bit words that are not drawn."""
    _library().dryfit_pass_over_random_words(state_address, count)
