"""A small ViT of timm, with its fused attention switched off, or on by hand."""

import timm
import torch
from timm.layers import set_fused_attn


def main(fused=""):
    set_fused_attn(bool(fused), experimental=True)
    model = timm.create_model("vit_tiny_patch16_224", depth=3, num_classes=10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 3, 224, 224, device="cuda")).sum().backward()
        optimizer.step()
