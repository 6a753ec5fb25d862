import torch.nn.functional as F
from torch import nn


def divided(model, loader, optimizer, k):
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y) / k
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def divided_later(model, loader, optimizer, k):
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        if k > 1:
            loss = loss / k
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def divided_at_backward(model, loader, optimizer, k):
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        (loss / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def divided_in_the_gradients(model, loader, optimizer, k):
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if (i + 1) % k == 0:
            for parameter in model.parameters():
                parameter.grad.div_(k)
            optimizer.step()
            optimizer.zero_grad()


def summed(model, loader, optimizer, k):
    criterion = nn.CrossEntropyLoss(reduction="sum")
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def with_accelerate(model, loader, optimizer, accelerator, k):
    print(list(model.parameters()))
    for i, batch in enumerate(loader):
        loss = model(**batch).loss
        accelerator.backward(loss)
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def critic_and_generator(critic, generator, critic_optimizer, generator_optimizer, loader, n_critic):
    print(list(critic.parameters()), list(generator.parameters()))
    for i, x in enumerate(loader):
        critic_optimizer.zero_grad()
        critic_loss = critic(x).mean()
        critic_loss.backward()
        critic_optimizer.step()
        if i % n_critic == 0:
            generator_optimizer.zero_grad()
            generator_loss = critic(generator(x)).mean()
            generator_loss.backward()
            generator_optimizer.step()


def helper_may_divide(compute, model, loader, optimizer, k):
    for i, batch in enumerate(loader):
        loss = compute(model, batch)
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def logging_only(model, loader, optimizer):
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 100 == 0:
            print(loss.item())
