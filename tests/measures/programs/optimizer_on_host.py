"""`language_model` with AdamW's states on the host, as the measure's snippet says; the class is copied from it."""

from typing import Any

import torch
from language_model import Model, train


class StatesOnHost(torch.optim.Optimizer):
    """Keeps an optimizer's states in pinned memory of the host: each parameter has its own on the card for its update.

    After `load_state_dict` all are on the card, until the next step.
    """

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = self.param_groups
        try:
            for group in groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self.param_groups = [{**group, "params": [parameter]}]
                        self._step_of(parameter)
        finally:
            self.param_groups = groups
        torch.cuda.synchronize()  # whoever saves the states finds them written
        return loss

    def _step_of(self, parameter: torch.Tensor) -> None:
        state = self.state[parameter]
        on_host = {name: value for name, value in state.items() if torch.is_tensor(value) and value.dim()}
        for name, value in on_host.items():
            state[name] = value.to(parameter.device, non_blocking=True)
        super().step()
        for name, value in state.items():
            if torch.is_tensor(value) and value.dim():
                host = on_host.get(name)
                if host is None or host.device.type != "cpu":
                    host = torch.empty_like(value, device="cpu", pin_memory=True)
                state[name] = host.copy_(value, non_blocking=True)


class OffloadedAdamW(StatesOnHost, torch.optim.AdamW):
    pass


class OffloadedAdam(StatesOnHost, torch.optim.Adam):
    pass


def main():
    model = Model().cuda()
    train(model, OffloadedAdamW(model.parameters(), lr=1e-3, fused=True))
