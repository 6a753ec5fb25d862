"""torchvision's Faster R-CNN: proposals, suppression and matching on the card."""

import torch
import torchvision

kept = torchvision.ops.nms(
    torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], device="cuda"),
    torch.tensor([0.5, 0.9, 0.1], device="cuda"),
    0.5,
)
model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5).cuda()
images = [torch.rand(3, 240, 320, device="cuda")]
boxes = torch.tensor([[10.0, 10, 100, 100], [50, 50, 200, 220]], device="cuda")
targets = [{"boxes": boxes, "labels": torch.tensor([1, 2], device="cuda")}]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    sum(model(images, targets).values()).backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    detections = [len(each["boxes"]) for each in model(images)]
found = {"nms": kept.tolist(), "allocated": torch.cuda.max_memory_allocated(), "detections": detections}
