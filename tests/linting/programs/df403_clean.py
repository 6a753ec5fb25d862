import torch


def once_per_epoch(model, loader, optimizer):
    for _epoch in range(3):
        for x in loader:
            model(x).mean().backward()
            optimizer.step()
        torch.cuda.empty_cache()


def now_and_then(model, loader, optimizer):
    for i, x in enumerate(loader):
        model(x).mean().backward()
        optimizer.step()
        if i % 1000 == 0:
            torch.cuda.empty_cache()


def after_running_out(model, loader, optimizer):
    for x in loader:
        try:
            model(x).mean().backward()
            optimizer.step()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()


def between_models(models, train):
    for model in models:
        train(model)
        torch.cuda.empty_cache()
