import contextlib
import unittest

import lightning.pytorch as pl
import torch
from torch import inference_mode, nn
from torch import no_grad as ng


def block(model: nn.Module, loader):
    model.eval()
    with torch.no_grad():
        for x in loader:
            print(model(x))


def block_in_the_loop(model: nn.Module, loader):
    model.eval()
    for x in loader:
        with ng(), torch.autocast("cuda"):
            print(model(x))


@torch.inference_mode()
def decorated(model: nn.Module, loader):
    model.eval()
    for x in loader:
        print(model(x))


@inference_mode()
def decorated_by_name(model: nn.Module, loader):
    model.eval()
    return [model(x) for x in loader]


def called_without_gradients(model: nn.Module, loader):
    model.eval()
    for x in loader:
        print(model(x))


def caller(model, loader):
    with torch.no_grad():
        called_without_gradients(model, loader)


def by_a_name(model: nn.Module, loader, training):
    context = contextlib.nullcontext() if training else torch.no_grad()
    model.eval()
    with context:
        for x in loader:
            print(model(x))


def by_a_stack(model: nn.Module, loader):
    model.eval()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        with torch.no_grad():
            for x in loader:
                print(model(x))


def frozen_batch_norm(model: nn.Module, loader, criterion, optimizer):
    model.eval()
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fgsm_attack(model: nn.Module, loader, epsilon):
    model.eval()
    for x, y in loader:
        x.requires_grad = True
        nn.functional.cross_entropy(model(x), y).backward()
        yield x + epsilon * x.grad.sign()


def robust_accuracy(model: nn.Module, loader, attack):
    model.eval()
    for x, y in loader:
        adversarial = attack(model, x, y)
        print(model(adversarial).argmax(1) == y)


def teacher(model: nn.Module, frozen: nn.Module, loader, optimizer):
    frozen.eval()
    for parameter in frozen.parameters():
        parameter.requires_grad = False
    for x in loader:
        loss = (model(x) - frozen(x)).pow(2).mean()
        loss.backward()
        optimizer.step()


def frozen_features(model: nn.Module, loader):
    model.requires_grad_(False)
    model.eval()
    for x in loader:
        yield model(x)


def train_again(model: nn.Module, loader):
    model.eval()
    model.train()
    for x in loader:
        print(model(x))


def step_in_a_helper(model: nn.Module, loader, optimizer):
    def step(out):
        out.sum().backward()
        optimizer.step()

    model.eval()
    for x in loader:
        step(model(x))


def called_in_both_modes(model, loader):
    return [model(x).argmax() for x in loader]


def in_eval(model: nn.Module, loader):
    model.eval()
    return called_in_both_modes(model, loader)


def in_train(model: nn.Module, loader):
    model.train()
    return called_in_both_modes(model, loader)


def generation(model: nn.Module, prompts):
    model.eval()
    for prompt in prompts:
        print(model.generate(prompt))


class Detector(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return self.head(x)


def detection(loader):
    detector = Detector()
    detector.eval()
    for x in loader:
        print(detector(x))


def run_once(model, x):
    with torch.no_grad():
        return model(x)


def with_a_careful_helper(model: nn.Module, loader):
    model.eval()
    for x in loader:
        print(run_once(model, x))


def walked_after_the_loop(model, batches):
    total = 0
    for x in batches:
        total = total + model(x).sum()
    total.backward()


def its_caller(model: nn.Module, batches):
    model.eval()
    walked_after_the_loop(model, batches)


def one_batch(model: nn.Module, loader):
    model.eval()
    for x in loader:
        out = model(x)
        print(out.shape)
        break


class Classifier(pl.LightningModule):
    def validation_step(self, batch, batch_idx):
        self.backbone.eval()
        return [self.backbone(x) for x in batch]


def tables(frame, rows):
    for row in rows:
        frame.eval("a + b")
        print(frame(row))


class Distance(nn.Module):
    def __init__(self, make_features):
        super().__init__()
        self.features = make_features(pretrained=True, requires_grad=False)

    def forward(self, one, other):
        return (self.features(one) - self.features(other)).pow(2).mean()


def distances(make_features, pairs):
    distance = Distance(make_features).to("cuda")
    distance.eval()
    return sum(distance(one, other).item() for one, other in pairs)


def made_anew(make, loader):
    model = make()
    model.eval()
    with torch.no_grad():
        print([model(batch) for batch in loader])
    model = make()
    for batch in loader:
        print(model(batch).argmax())


class TestTransforms(unittest.TestCase):
    def test_twice(self):
        transform = nn.Identity()
        transform.eval()
        for batch in (1, 2):
            self.assertEqual(transform(batch), transform(batch))
