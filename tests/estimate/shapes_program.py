"""What transformers and peft themselves build of each config, a line each, for the golden file; run by hand only.

A parameter is its shape, then E for embedding, L linear, T transposed linear, H output layer, A in attention, C cast by
autocast. The last figure is the number of parameters in peft's adapters of rank 4 on all linear layers, where it
leaves the output layer alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import json
import tempfile

from configs import CONFIGS
from shape_lines import RANK, line_of, peft_spares_the_head

from dryfit.estimate.build import build_from_config


def adapter_count(folder: Path, kind: str) -> int:
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    config = transformers.AutoConfig.from_pretrained(str(folder))
    task = "SEQ_CLS" if "Sequence" in kind else None
    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    model = get_peft_model(model, LoraConfig(r=RANK, target_modules="all-linear", task_type=task))
    return sum(weight.numel() for name, weight in model.named_parameters() if "lora_" in name)


for config in CONFIGS:
    kind = config["architectures"][0]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "config.json"
        place.write_text(json.dumps(config))
        model = build_from_config(place, str(place), kind)
        adapted = adapter_count(place.parent, kind) if peft_spares_the_head(kind) else "-"
        print(f"GOLDEN {line_of(kind, model, adapted)}")
