"""Lightning on many cards: a stack of linear layers, by DDP, FSDP1, FSDP2 or Fabric.

dryfit run --world 16 examples/distributed/lightning_strategies.py fsdp2 --nodes 2

Lightning takes devices=8 and num_nodes from the program, and refuses a world of any other size.
"""

import argparse

import lightning
import torch
from lightning.fabric.strategies import FSDPStrategy as FabricFSDPStrategy
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS, BATCH, CARDS = 2048, 8, 16, 8


class Stack(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            for layer in (*self.layers, self.layers):
                fully_shard(layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return self.layers(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("strategy", choices=("ddp", "fsdp", "fsdp2", "fabric"))
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    arguments = parser.parse_args()

    data = torch.utils.data.TensorDataset(torch.randn(20_000, WIDTH))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    if arguments.strategy == "fabric":
        train_with_fabric(loader, arguments.nodes, arguments.accumulate)
        return
    strategies = {
        "ddp": DDPStrategy,
        "fsdp": lambda: FSDPStrategy(auto_wrap_policy={nn.Linear}),
        "fsdp2": lambda: ModelParallelStrategy(data_parallel_size=CARDS * arguments.nodes, tensor_parallel_size=1),
    }
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=CARDS,
        num_nodes=arguments.nodes,
        strategy=strategies[arguments.strategy](),
        accumulate_grad_batches=arguments.accumulate,
        max_epochs=1,
        enable_progress_bar=False,
    )
    trainer.fit(Stack(), loader)


def train_with_fabric(loader: torch.utils.data.DataLoader, nodes: int, accumulate: int) -> None:
    fabric = lightning.Fabric(
        accelerator="gpu", devices=CARDS, num_nodes=nodes, strategy=FabricFSDPStrategy(auto_wrap_policy={nn.Linear})
    )
    fabric.launch()
    model = fabric.setup_module(nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]))
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
    for index, (batch,) in enumerate(fabric.setup_dataloaders(loader), start=1):
        is_last = index % accumulate == 0
        with fabric.no_backward_sync(model, enabled=not is_last):
            fabric.backward(model(batch).square().mean())
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
