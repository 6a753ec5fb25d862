import contextlib

from torch.nn.parallel import DistributedDataParallel as DDP


def plain(module, loader, optimizer, k):
    model = DDP(module)
    for i, batch in enumerate(loader):
        loss = model(batch).mean() / k
        if (i + 1) % k:
            with model.no_sync():  # <- DF305
                loss.backward()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def by_a_name(module, loader, k):
    model = DDP(module, device_ids=[0])
    for i, batch in enumerate(loader):
        loss = model(batch).mean() / k
        context = model.no_sync if (i + 1) % k else contextlib.nullcontext
        with context():  # <- DF305
            loss.backward()
