"""fp16 with a GradScaler."""

import torch

taken = 0


class SGD(torch.optim.SGD):
    def step(self, *args, **kwargs):
        global taken
        taken += 1
        return super().step(*args, **kwargs)


model = torch.nn.Linear(64, 64).cuda()
optimizer, scaler = SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
for _ in range(4):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(8192, 64, device="cuda")).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
found = {"scale": scaler.get_scale(), "steps": taken}
