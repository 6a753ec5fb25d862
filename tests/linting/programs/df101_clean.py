import numpy as np
import torch
import torch.nn.functional as F
from torch import no_grad as ng


def numbers(model, loader, criterion, optimizer):
    total = correct = seen = other = 0
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        total += loss.item() * x.size(0)
        other += float(loss)
        correct += (output.argmax(1) == y).sum().item()
        seen += len(y)


def detached(model, loader, criterion):
    a = b = c = d = e = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        a += loss.detach()
        b += loss.data
        b += loss.data[0]
        c += loss.cpu().detach().numpy()
        with torch.no_grad():
            d += loss
        loss = loss.detach() / 2
        e += loss


def detached_in_place(model, loader, criterion):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        loss.detach_()
        total += loss


def several_heads(model, batch, heads, optimizer):
    for x, targets in batch:
        total_loss = 0
        features = model(x)
        for head, target in zip(heads, targets, strict=True):
            loss = F.cross_entropy(head(features), target)
            total_loss += loss
        optimizer.zero_grad()
        total_loss.backward()
        optimizer.step()


def over_time(rnn, sequence, criterion, optimizer):
    loss = 0
    hidden = rnn.init_hidden()
    for x, y in sequence:
        output, hidden = rnn(x, hidden)
        loss += criterion(output, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item() / len(sequence)


def micro_batches_before_one_backward(model, loader, criterion, optimizer, k):
    window = 0
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        window = window + loss
        if (step + 1) % k == 0:
            window = window / k
            window.backward()
            optimizer.step()
            optimizer.zero_grad()
            window = 0


def loss_of_a_caller(model, parts, criterion):
    total = 0
    for x, y in parts:
        total += criterion(model(x), y)
    return total


def with_a_number_from_a_helper(model, loader, optimizer):
    def step(batch):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    total = 0
    for batch in loader:
        total += step(batch)
    return total


def reset_each_time(model, loader, criterion):
    for x, y in loader:
        shown = 0
        loss = criterion(model(x), y)
        loss.backward()
        shown += loss
        print(shown)


@ng()
def evaluation(model, loader, criterion):
    model.eval()
    total = 0
    for x, y in loader:
        total += criterion(model(x), y)
    return total


def into_numpy(model, loader, criterion):
    history = np.zeros(3)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        history += loss.item()


def not_a_loss(model, loader, criterion, meter):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        meter.update(loss)
        meter.steps += len(x)


def smoothed(model, loader, criterion, penalty):
    average = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss = loss + penalty(model)
        loss.backward()
        average = 0.9 * average + 0.1 * loss.item()
        average = average + 0.0 * loss.detach()


def joined(model, loader, criterion):
    seen = None
    for x, y in loader:
        out = model(x)
        criterion(out, y).backward()
        seen = out if seen is None else torch.cat((seen, out.detach()))
    return seen


class Manual:
    def optimize(self, x):
        self.loss = self.base(x)
        self.loss += self.penalty(x)
        self.loss.backward()

    def two_losses(self, x, y):
        self.total = 0
        loss = self.criterion(self.model(x), y)
        self.total += loss
        self.total.backward()


def scaled_by_the_arguments(model, loader, optimizer, parser):
    args = parser.parse_args()
    total_loss = 0
    for x, y in loader:
        raw_loss = F.nll_loss(model(x), y)
        loss = raw_loss
        loss *= args.small_batch_size / args.batch_size
        total_loss += raw_loss.data * args.small_batch_size / args.batch_size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return total_loss
