from torch.nn.parallel import DistributedDataParallel as DDP


def both(module, loader, k):
    model = DDP(module)
    for batch in loader:
        with model.no_sync():
            loss = model(batch).mean() / k
            loss.backward()


def helper(module, loader, step):
    model = DDP(module)
    for batch in loader:
        model(batch)
        with model.no_sync():
            step(model, batch).backward()


def of_unknown_kind(model, loader, fabric):
    for batch in loader:
        loss = model(batch).mean()
        with fabric.no_backward_sync(model):
            fabric.backward(loss)
