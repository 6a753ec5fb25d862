import torch


@torch.no_grad()
def moved(model, loader, device):
    model.eval()
    out, classes, kept, numbers = [], [], [], []
    for x, _ in loader:
        logits = model(x.to(device))
        out.append(logits.cpu())
        classes.append(logits.argmax(1))
        kept.append(logits)
        numbers.append(logits.mean().item())
    print(torch.cat(kept).std())
    return torch.cat(out).numpy(), torch.cat(classes).cpu()


@torch.no_grad()
def on_the_host(model, loader):
    model.eval()
    out = []
    for x in loader:
        out.append(model(x))
    return torch.cat(out).numpy()
