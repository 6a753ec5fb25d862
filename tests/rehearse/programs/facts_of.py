"""Small programs of which the facts are known: facts_of.py NAME [ARGUMENTS ...] runs the function of that name."""

import sys
import tempfile

import accelerate
import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

WIDTH, CLASSES, LAYERS, BATCH = 64, 512, 3, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, checkpoints=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.checkpoints = checkpoints

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(x)


class Attention(nn.Module):
    """Attention of every kind: fused, over a square in memory, and with weights that nobody asks for."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x, kind):
        if kind == "multihead":
            return self.out(x, x, x)[0]
        q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        if kind == "fused":
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v


def batch(size=BATCH):
    return torch.randn(size, WIDTH, device="cuda")


def targets(size=BATCH):
    return torch.zeros(size, dtype=torch.long, device="cuda")


def data(**loader):
    return DataLoader(TensorDataset(torch.randn(640, WIDTH), torch.zeros(640, dtype=torch.long)), **loader)


def made(model, kind=torch.optim.AdamW, **settings):
    model = model.cuda()
    return model, kind(model.parameters(), lr=1e-3, **settings)


def train(model, optimizer, loss_of=lambda model: F.cross_entropy(model(batch()), targets()), micro_batches=1):
    for _ in range(5):
        for _ in range(micro_batches):
            loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def plain():
    train(*made(Net()))


def checkpoints(stops):
    with set_checkpoint_early_stop(stops == "early"):
        train(*made(Net(checkpoints=True)))


def accumulates():
    train(*made(Net()), micro_batches=4)


def fused_sgd():
    train(*made(Net(), torch.optim.SGD, fused=True))


def attention(kind):
    train(*made(Attention()), lambda model: model(torch.randn(2, 128, WIDTH, device="cuda"), kind).sum())


def convolutions():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    train(*made(model), lambda model: model(torch.randn(2, 3, 16, 16, device="cuda")).sum())


def recurrent():
    train(*made(nn.LSTM(WIDTH, WIDTH)), lambda model: model(torch.randn(8, 2, WIDTH, device="cuda"))[0].sum())


def scales():
    model, optimizer = made(Net())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(5):
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(batch()), targets())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def soft_capped():
    train(*made(Net()), lambda model: F.cross_entropy(30 * torch.tanh(model(batch()) / 30), targets()))


def evaluates(how):
    model, optimizer = made(Net())
    for _ in range(5):
        if how == "throughout":  # as to leave batch norms alone
            model.eval()
        F.cross_entropy((model(batch()) + model(batch())), targets()).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        if how != "throughout":
            with torch.set_grad_enabled(how == "with graph"):
                for _ in range(2):
                    model(batch())
        model.train()


def closure():
    model, optimizer = made(Net(), torch.optim.SGD)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch()), targets())
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(step)


def loads(whose):
    model, optimizer = made(Net())
    dataset = data().dataset
    sampler = BatchSampler(RandomSampler(dataset), BATCH, drop_last=True)
    if whose == "own":
        sampler = [list(range(BATCH)) for _ in range(9)]
    loader = DataLoader(dataset, batch_sampler=sampler, pin_memory=True, num_workers=1)
    held_out = data(batch_size=7)
    for x, y in loader:
        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(next(iter(held_out))[0].cuda())


def penalises():
    """A gradient penalty: its first pass back accumulates nothing."""

    def loss_of(model):
        x = batch().requires_grad_()
        return torch.autograd.grad(F.gelu(model(x)).sum(), x, create_graph=True)[0].square().sum()

    train(*made(Net()), loss_of)


def keeps_on_host():
    def loss_of(model):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return model[1](model[0](batch())).sum()

    train(*made(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid())), loss_of)


def multiplies_integers():
    model, optimizer = made(nn.Linear(WIDTH, WIDTH, bias=False))
    weight = torch.zeros(WIDTH, 8 * WIDTH, dtype=torch.int8, device="cuda")
    for _ in range(5):
        product = torch._int_mm(torch.zeros(2 * BATCH, WIDTH, dtype=torch.int8, device="cuda"), weight)
        (model(batch()).sum() + product.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()


def counts_itself():
    """The program's own mode is on while it trains: both have to count the same, or it fails."""
    model, optimizer = made(Net())
    with FlopCounterMode(display=False) as own:
        train(model, optimizer)
    with FlopCounterMode(display=False) as one:
        F.cross_entropy(model(batch()), targets()).backward()
    assert own.get_total_flops() == 5 * one.get_total_flops()


def compiles():
    model, optimizer = made(Net())
    train(torch.compile(model, backend="aot_eager"), optimizer)


def infers():
    """A teacher in inference mode, where operators come as they are written."""
    teacher = Net().cuda()

    def loss_of(model):
        x = batch()
        with torch.inference_mode():
            wanted = teacher(x)
        return F.mse_loss(model(x), wanted.clone())

    train(*made(Net()), loss_of)


def trainer():
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments  # looks at the card

    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=6, max_steps=4, report_to=[], bf16=True, save_strategy="no"
    )
    tokens = [{"input_ids": each, "labels": each} for each in torch.randint(512, (64, 32))]
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    Trainer(model=model, args=arguments, train_dataset=tokens).train()


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, each, _):
        return F.cross_entropy(self.net(each[0]), each[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def of_lightning():
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    fitting = lightning.Trainer(accelerator="gpu", devices=1, max_steps=4, accumulate_grad_batches=2, **off)
    fitting.fit(Module(), data(batch_size=BATCH))


def accelerates():
    accelerator = accelerate.Accelerator(mixed_precision="bf16")
    model = Net()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data(batch_size=BATCH))
    for x, y in loader:
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
