"""What the virtual card answers of cuDNN's recurrent networks: for each line of JSON on stdin, one on stdout.

A line has `cell` (rnn, gru, lstm), `type` (bytes of an element: 2, 4, 8), `input`, `hidden`, `output`, `layers`,
`directions`, `dropout`, `lengths` (of each sequence) and `training`; the answer `weights`, `workspace`, `reserve`.
"""

from __future__ import annotations

import ctypes
import json
import sys

CARD = ctypes.CDLL(None)
CELLS = {"rnn": 1, "lstm": 2, "gru": 3}  # cudnnRNNMode_t
TYPES = {2: 2, 4: 0, 8: 1}  # cudnnDataType_t
DOUBLE_BIAS, LINEAR_INPUT, UNPACKED = 2, 0, 1


def made(name: str) -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    assert getattr(CARD, f"cudnnCreate{name}Descriptor")(ctypes.byref(found)) == 0
    return found


for line in sys.stdin:
    asked = json.loads(line)
    dropout, network, data = made("Dropout"), made("RNN"), made("RNNData")
    CARD.cudnnSetDropoutDescriptor(
        dropout, None, ctypes.c_float(asked["dropout"]), None, ctypes.c_size_t(0), ctypes.c_ulonglong(0)
    )
    kind, width = TYPES[asked["type"]], asked["input"]
    words = [0, CELLS[asked["cell"]], DOUBLE_BIAS, asked["directions"] - 1, LINEAR_INPUT, kind, kind, 0]
    sizes = [width, asked["hidden"], asked["output"], asked["layers"]]
    CARD.cudnnSetRNNDescriptor_v8(network, *words, *sizes, dropout, 0)
    lengths = asked["lengths"]
    CARD.cudnnSetRNNDataDescriptor(
        data, kind, UNPACKED, max(lengths), len(lengths), width, (ctypes.c_int * len(lengths))(*lengths), None
    )
    weights, workspace, reserve = (ctypes.c_size_t() for _ in range(3))
    CARD.cudnnGetRNNWeightSpaceSize(None, network, ctypes.byref(weights))
    CARD.cudnnGetRNNTempSpaceSizes(
        None, network, int(asked["training"]), data, ctypes.byref(workspace), ctypes.byref(reserve)
    )
    answer = {"weights": weights.value, "workspace": workspace.value, "reserve": reserve.value}
    print(json.dumps(answer), flush=True)
