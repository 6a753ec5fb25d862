"""torchvision's ViT-L/16 on 224 x 224 images in float32 with AdamW."""

from by_hand import arguments, train


def main():
    given = arguments(batch=64, layers=24, width=1024, heads=16)
    import torch
    from torch.nn import functional
    from torchvision.models import VisionTransformer

    model = VisionTransformer(
        image_size=224,
        patch_size=16,
        num_layers=given.layers,
        num_heads=given.heads,
        hidden_dim=given.width,
        mlp_dim=4 * given.width,
    )
    model = model.to(given.dtype).cuda()

    def loss_of(batch):
        images, labels = batch
        return functional.cross_entropy(model(images.to(given.dtype)), labels)

    def inputs(size):
        return torch.randn(size, 3, 224, 224, device="cuda"), torch.randint(1000, (size,), device="cuda")

    train(given, model, loss_of, inputs, blocks=list(model.encoder.layers))
