import sys

import torch
from torch import nn

model, loader, criterion = torch.load("model.pt"), torch.load("loader.pt"), nn.CrossEntropyLoss()

if "--test" in sys.argv:
    if torch.cuda.is_available():
        model = nn.DataParallel(model)
    with torch.no_grad():
        print([model(batch) for batch, _ in loader])
    sys.exit(0)

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for batch, targets in loader:
    optimizer.zero_grad()
    criterion(model(batch), targets).backward()
    optimizer.step()
