"""What is kept of the last few steps only, in ways that no line says: by length, by chance, by a slice of a sum."""

import random

import torch
from parts import CLASSES, WIDTH, classifier
from torch.nn import functional


class Pool:
    """Generated images of before, some of which are given again."""

    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, images):
        given = []
        for image in images.detach().split(len(images) // 2):
            if len(self.images) < self.size:
                self.images.append(image)
                given.append(image)
            elif random.random() > 0.5:
                place = random.randrange(self.size)
                given.append(self.images[place].clone())
                self.images[place] = image
            else:
                given.append(image)
        return torch.cat(given)


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    pool, last_of_length, recent = Pool(16), {}, []
    for step in range(40):
        length = (40, 80, 160, 200)[step % 4]
        outputs = model(torch.randn(length, WIDTH, device="cuda"))
        loss = functional.cross_entropy(outputs, torch.randint(CLASSES, (length,), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pool.query(outputs)
        last_of_length[length] = outputs.detach()
        recent = [*recent, outputs.detach()][-3:]


if __name__ == "__main__":
    main()
