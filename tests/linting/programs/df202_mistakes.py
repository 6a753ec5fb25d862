import torch


def plain(model, loader, device):
    model.eval()
    preds = []
    with torch.no_grad():
        for x, _ in loader:
            out = model(x.to(device))
            preds.append(out)  # <- DF202
    return torch.cat(preds).cpu().numpy()


@torch.inference_mode()
def probabilities(model, loader):
    model.eval()
    scores = []
    for x in loader:
        logits = model(x.cuda()).logits
        scores.append(torch.softmax(logits, dim=-1))  # <- DF202
    scores = torch.cat(scores, dim=0).float().cpu()
    print(scores.shape)
