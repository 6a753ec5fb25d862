"""Train torchvision's Faster, Mask or Keypoint R-CNN on two images of the largest usual size, as one rank: SGD.

    python detection_step.py --model fasterrcnn_resnet50_fpn

Images of COCO vary; the sampler of the reference keeps upright and broad ones apart, so the largest batch is two of
800 x 1333. How many boxes are kept depends on values; ten boxes are given for each image.
"""

import argparse

import torch
from one_rank import join_world_of_one
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import detection

BOXES = 10


def target(heights: int, widths: int) -> dict[str, Tensor]:
    starts = torch.rand(BOXES, 2) * torch.tensor([widths / 2, heights / 2])
    boxes = torch.cat((starts, starts + torch.tensor([widths / 3, heights / 3])), 1)
    masks = torch.zeros(BOXES, heights, widths, dtype=torch.uint8)
    keypoints = torch.cat((starts[:, None].expand(BOXES, 17, 2) + 10, torch.ones(BOXES, 17, 1)), 2)
    return {"boxes": boxes, "labels": torch.ones(BOXES, dtype=torch.int64), "masks": masks, "keypoints": keypoints}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="fasterrcnn_resnet50_fpn")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    classes = 2 if "keypoint" in arguments.model else 91
    model = getattr(detection, arguments.model)(weights=None, weights_backbone=None, num_classes=classes)
    for part in (model.backbone.body.conv1, model.backbone.body.layer1):
        part.requires_grad_(False)
    model.to("cuda")
    join_world_of_one()
    parallel = DistributedDataParallel(model, device_ids=[0])
    parallel.train()
    trained = [parameter for parameter in parallel.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.02, momentum=0.9, weight_decay=1e-4, foreach=False)
    keep = ["boxes", "labels"] + [part for part in ("masks", "keypoints") if part[:4] in arguments.model]
    for _ in range(arguments.steps):
        images = [torch.rand(3, 800, 1333).to("cuda") for _ in range(2)]
        targets = [
            {name: values.to("cuda") for name, values in target(800, 1333).items() if name in keep} for _ in images
        ]
        losses = sum(parallel(images, targets).values())
        losses.item()
        optimizer.zero_grad(set_to_none=False)
        losses.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
