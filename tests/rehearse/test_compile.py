"""torch.compile in a rehearsal: the program is traced as it is without our hooks."""

from __future__ import annotations

from tests.rehearse.conftest import Rehearse

PROGRAM = """
    import torch
    from torch import nn
    from torch._dynamo.utils import counters

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rest = nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64), nn.ReLU())

        def forward(self, x):
            return self.rest(self.first(x))

    model = Model().cuda()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(2):
        compiled(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
    print("graphs", counters["stats"]["unique_graphs"], "breaks", sum(counters["graph_break"].values()))
"""


def test_a_model_is_one_graph_without_a_break(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, options=("--steps", "all"))
    assert "graphs 1 breaks 0" in done.stderr
    assert done.code == 0
