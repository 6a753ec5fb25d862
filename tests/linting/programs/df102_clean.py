from collections import deque

import torch


def detached(model, loader, criterion, optimizer):
    numbers, moved, arrays, classes, inputs = [], [], [], [], []
    recent = deque(maxlen=10)
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        numbers.append(loss.item())
        moved.append(out.detach().cpu())
        arrays.append(out.data.cpu().numpy())
        _, predicted = out.max(1)
        classes.append(predicted)
        inputs.append(x)
        recent.append(loss)


def kept_for_one_backward(model, episodes, optimizer):
    for episode in episodes:
        log_probs, rewards = [], []
        for state in episode:
            probs = model(state)
            log_probs.append(torch.log(probs.max()))
            rewards.append(1.0)
        loss = -(torch.stack(log_probs) * torch.tensor(rewards)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def losses_of_layers(model, batches, criterion):
    for x, y in batches:
        losses = []
        for out in model(x):
            losses.append(criterion(out, y))
        sum(losses).backward()


def emptied(model, loader, criterion):
    losses = []
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        losses.append(loss)
        if len(losses) > 5:
            losses.pop(0)


def without_gradients(model, loader):
    model.eval()
    out = []
    with torch.inference_mode():
        for x in loader:
            out.append(model(x))
    return out


class Agent:
    def act(self, state):
        probs = self.policy(state)
        self.saved.append(probs.log())
        return probs

    def learn(self):
        loss = torch.stack(self.saved).sum()
        loss.backward()
        self.saved.clear()


def averaged(model, loader, criterion, optimizer, metrics):
    run_loss = metrics.CumulativeAverage()
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run_loss.append(loss)
    return run_loss.aggregate()
