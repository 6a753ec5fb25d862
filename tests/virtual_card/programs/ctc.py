"""What the virtual card answers of cuDNN's CTC loss where labels are on the card: with most labels 0, 10 and 20."""

from __future__ import annotations

import ctypes
import json

CARD = ctypes.CDLL(None)
STEPS, SEQUENCES, SYMBOLS = 50, 16, 20


def made(name: str) -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    assert getattr(CARD, f"cudnnCreate{name}Descriptor")(ctypes.byref(found)) == 0
    return found


probabilities, loss = made("Tensor"), made("CTCLoss")
sizes = (ctypes.c_int * 3)(STEPS, SEQUENCES, SYMBOLS)
CARD.cudnnSetTensorNdDescriptor(probabilities, 0, 3, sizes, None)
answers = []
for most_labels in (0, 10, 20):
    CARD.cudnnSetCTCLossDescriptor_v9(loss, 0, 1, 1, most_labels)
    for gradients in (None, probabilities):
        found = ctypes.c_size_t()
        CARD.cudnnGetCTCLossWorkspaceSize_v8(None, 0, loss, probabilities, gradients, ctypes.byref(found))
        answers.append(found.value)
print(json.dumps(answers))
