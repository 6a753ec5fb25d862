from torch import optim


def after_the_step(model, loader, criterion):
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def after_forward(model, loader, criterion, optimizer):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def two_players(real, fake, d_optimizer, g_optimizer, loader):
    for x in loader:
        d_loss = real(x).mean()
        d_loss.backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        g_loss = fake(x).mean()
        g_loss.backward()
        g_optimizer.step()
        d_optimizer.zero_grad()


def generator_first(d, g, d_optimizer, g_optimizer, loader):
    for x in loader:
        g_optimizer.zero_grad()
        d(g(x)).mean().backward()
        d_optimizer.zero_grad()
        d(x).mean().backward()
        d_optimizer.step()
        g_optimizer.step()


def gradients_kept_aside(model, loader, criterion, optimizer):
    for x, y in loader:
        criterion(model(x), y).backward()
        kept = [each.grad.clone() for each in model.parameters()]
        optimizer.zero_grad()
        for each, gradient in zip(model.parameters(), kept, strict=True):
            each.grad = gradient
        optimizer.step()


def with_a_closure(model, loader, optimizer):
    for x in loader:

        def closure(x=x):
            optimizer.zero_grad()
            loss = model(x).mean()
            loss.backward()
            return loss

        optimizer.step(closure)


def accumulated(model, loader, k):
    optimizer = optim.Adam(model.parameters())
    for i, batch in enumerate(loader):
        if i % k == 0:
            optimizer.zero_grad()
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
