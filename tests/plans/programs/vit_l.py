"""torchvision's ViT-L/16 on 224 x 224 images in float32 with AdamW."""

from by_hand import arguments, train


def main():
    given = arguments(batch=64)
    import torch
    import torchvision
    from torch.nn import functional

    model = torchvision.models.vit_l_16(weights=None).cuda()

    def loss_of(batch):
        images, labels = batch
        return functional.cross_entropy(model(images), labels)

    def inputs(size):
        return torch.randn(size, 3, 224, 224, device="cuda"), torch.randint(1000, (size,), device="cuda")

    train(given, model, model.encoder.layers, loss_of, inputs)
