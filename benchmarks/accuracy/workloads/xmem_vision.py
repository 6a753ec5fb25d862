"""The convolutional networks that the xMem paper trained on a card: `xmem_vision.py ResNet101 SGD 351`.

Four steps of classification in fp32 on images of 86x86, with models of torchvision. Weights are random and images are
empty; sizes are those of the published runs. `--steps 0` ends once the model is loaded and the optimizer made: as far
as the published runs may have come when they read the card's memory for the first time.
"""

import argparse

import torch
import torchvision
from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf

# By the names in the published table; where torchvision's function is not its own name in small letters.
TORCHVISION = {
    "VGG16": "vgg16",
    "VGG19": "vgg19",
    "ResNet101": "resnet101",
    "ResNet152": "resnet152",
    "MobileNetV2": "mobilenet_v2",
    "ConvNeXtTiny": "convnext_tiny",
    "ConvNeXtBase": "convnext_base",
    "RegNetX400MF": "regnet_x_400mf",
    "RegNetY400MF": "regnet_y_400mf",
}
SIZE = 86


def network(name: str) -> torch.nn.Module:
    """1000 classes as torchvision has them, but for MnasNet and MobileNetV3, which had the 10 of CIFAR-10."""
    if name == "MnasNet":
        return torchvision.models.MNASNet(alpha=1.0, num_classes=10)
    if name in ("MobileNetV3Large", "MobileNetV3Small"):
        large = name.endswith("Large")
        settings, _ = _mobilenet_v3_conf("mobilenet_v3_large" if large else "mobilenet_v3_small")
        return MobileNetV3(settings, last_channel=1280 if large else 1024, num_classes=10)
    return getattr(torchvision.models, TORCHVISION[name])(weights=None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=(*TORCHVISION, "MnasNet", "MobileNetV3Large", "MobileNetV3Small"))
    parser.add_argument("optimizer", choices=("Adagrad", "Adam", "AdamW", "RMSprop", "SGD"))
    parser.add_argument("batch", type=int)
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    device = torch.device("cuda:0")
    torch.cuda.set_per_process_memory_fraction(1.0, device=device)
    model = network(asked.model).to(device).train()
    optimizer = getattr(torch.optim, asked.optimizer)(model.parameters(), lr=0.001)
    loss_of = torch.nn.CrossEntropyLoss()
    for _ in range(asked.steps):
        # As from a loader: the names hold the batch on the host first, which lets go of the last one on the card.
        images, labels = torch.empty(asked.batch, 3, SIZE, SIZE), torch.zeros(asked.batch, dtype=torch.long)
        optimizer.zero_grad()
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        loss = loss_of(outputs, labels)
        loss.backward()
        optimizer.step()
        _values, _classes = torch.max(outputs, 1)  # kept until the next step, as in the published loop


if __name__ == "__main__":
    main()
