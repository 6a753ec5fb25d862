import torch


def largest_batch(make_model, make_batch, low, high):
    while low < high:
        size = (low + high + 1) // 2
        try:
            model, batch = make_model(), make_batch(size)
            model(batch).sum().backward()
            low = size
            del model, batch
            torch.cuda.empty_cache()
        except torch.cuda.OutOfMemoryError:
            high = size - 1
    return low
