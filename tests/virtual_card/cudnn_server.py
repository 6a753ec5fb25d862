"""The server of cuDNN's answers, started for a test, and questions written by hand."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dryfit.cards import find_card
from dryfit.virtual_card import installed_torch
from dryfit.virtual_card.cudnn import Oracle, PlanServer, oracle_for
from dryfit.virtual_card.settings import settings_of

FORWARD, DATA, FILTER = "fwd", "dgrad", "wgrad"
_TYPES = {"f32": 0, "f16": 2, "bf16": 9}  # cudnnDataType_t
# Of each operation: its kind, and the names of x, w, y, the convolution, alpha and beta.
_OPERATIONS = {
    FORWARD: (10, (704, 703, 705, 702, 700, 701)),
    DATA: (12, (710, 709, 711, 708, 706, 707)),
    FILTER: (11, (716, 715, 717, 714, 712, 713)),
}


def oracle(card: str = "a100-80gb") -> Oracle:
    """Whom to ask about a card of the catalogue."""
    return oracle_for(settings_of(find_card(card)), installed_torch())


class Child:
    """The server as a child of the test."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], descriptor: int) -> None:
        self.process = subprocess.Popen(words, env=dict(variables), pass_fds=[descriptor], stderr=subprocess.DEVNULL)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Asking:
    """One who asks a server; `ask` gives None where it has gone."""

    def __init__(self, server: PlanServer) -> None:
        path = server.variables["DRYFIT_CUDNN_SOCKET"]
        self._server = server
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(60)
        folder = os.open(Path(path).parent, os.O_PATH)
        try:
            self._connection.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
        except OSError:
            self._connection.close()
            raise
        finally:
            os.close(folder)

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, question: str) -> str | None:
        self._server.look()
        answer = b""
        try:
            self._connection.sendall(question.encode() + b"\n")
            while not answer.endswith(b"\n"):
                received = self._connection.recv(1 << 16)
                if not received:
                    return None
                answer += received
        except (BrokenPipeError, ConnectionResetError):
            return None
        return answer.decode().rstrip("\n")


def ask(server: PlanServer, question: str) -> str | None:
    """Ask once."""
    with Asking(server) as asking:
        return asking.ask(question)


def heuristics(
    operation: str, x: Sequence[int], w: Sequence[int], y: Sequence[int], *, dtype: str = "f32", last: bool = False
) -> str:
    """Heuristics of mode A for a convolution of one group whose windows are padded to keep their places."""
    kind, (x_name, w_name, y_name, convolution_name, alpha, beta) = _OPERATIONS[operation]
    tensors = [_tensor(uid, each, _TYPES[dtype], last) for uid, each in ((120, x), (119, w), (121, y))]
    padding, step = w[2] // 2, x[2] // y[2]
    convolution = f"1(100:1=00000000,101:7=01000000,106:3=2,105:3={padding}.{padding},104:3={padding}.{padding},"
    convolution += f"102:3=1.1,103:3={step}.{step})"
    graph = f"15(801:15={kind}({x_name}:15={tensors[0]},{w_name}:15={tensors[1]},{y_name}:15={tensors[2]},"
    graph += f"{convolution_name}:15={convolution},{alpha}:4={struct.pack('<f', 1).hex()},{beta}:4=00000000))"
    return f"4(201:15={graph},200:8=03000000)"


def _tensor(uid: int, sizes: Sequence[int], dtype: int, last: bool) -> str:
    _, c, h, w = sizes
    strides = [c * h * w, 1, w * c, c] if last else [c * h * w, h * w, w, 1]
    sizes_text, strides_text = (".".join(map(str, each)) for each in (sizes, strides))
    return f"17(901:1={dtype:02x}000000,902:3={sizes_text},903:3={strides_text},906:3={uid},900:3=16)"
