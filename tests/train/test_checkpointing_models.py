"""`checkpoint_blocks` in models of all kinds: bit-equal, with dropout on; on several ranks; and its bytes on a card."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train import checkpointing_ranks
from tests.train.processes import run_on_ranks
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from dryfit.errors import UsageError
from dryfit.rehearse.result import Result
from dryfit.rehearse.warm import warm_rehearsals
from dryfit.train import checkpoint_blocks

PROGRAM = str(Path(__file__).parent / "programs" / "checkpointed.py")
MEASURED = str(Path(__file__).parents[1] / "measures" / "programs")
CARD = "sm=80,sms=108,memory=40GiB"
IN_TRANSFORMERS_4 = importlib.metadata.version("transformers").startswith("4.")
TOKENS = torch.arange(24).view(2, 12)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.dropout, self.down = nn.Linear(8, 32), nn.Dropout(0.3), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.dropout(torch.relu(self.up(x))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), Layer(), Layer(), Layer(), nn.Linear(8, 3))


def resnet() -> nn.Module:
    models = pytest.importorskip("torchvision.models")
    return models.resnet18(num_classes=10)


def vit() -> nn.Module:
    models = pytest.importorskip("torchvision.models")
    return models.VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=3,
        num_heads=2,
        hidden_dim=32,
        mlp_dim=64,
        dropout=0.1,
        attention_dropout=0.1,
        num_classes=10,
    )


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(n_layer=3, n_embd=32, n_head=2, vocab_size=64, n_positions=32, **ends)
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        num_hidden_layers=3,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        attention_dropout=0.1,
    )
    return transformers.LlamaForCausalLM(config)


def t5() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        num_layers=2, d_model=32, d_ff=64, num_heads=2, d_kv=16, vocab_size=64, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


def densenet() -> nn.Module:
    models = pytest.importorskip("torchvision.models")
    return models.DenseNet(growth_rate=8, block_config=(3, 3), num_init_features=8, num_classes=10)


def convnext() -> nn.Module:
    timm = pytest.importorskip("timm")
    return timm.create_model("convnext_atto", num_classes=10, drop_path_rate=0.2)


def whisper() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8,
        encoder_attention_heads=2, decoder_attention_heads=2, vocab_size=64, dropout=0.1, max_source_positions=20,
        max_target_positions=20, pad_token_id=0, decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(**batch).loss if isinstance(batch, dict) else model(batch).square().mean()


WORDS = {"input_ids": TOKENS, "labels": TOKENS}
MODELS: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "MLP": (mlp, torch.linspace(0, 1, 60).view(5, 12), "3 Layer"),
    "ResNet": (resnet, torch.linspace(0, 1, 4 * 3 * 16 * 16).view(4, 3, 16, 16), "8 BasicBlock"),
    "ViT": (vit, torch.linspace(0, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), "3 EncoderBlock"),
    "GPT-2": (gpt2, WORDS, "3 GPT2Block"),
    "Llama": (llama, WORDS, "3 LlamaDecoderLayer"),
    "T5": (t5, WORDS, "4 T5Block"),
    "DenseNet": (densenet, torch.linspace(0, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), "6 _DenseLayer"),
    "ConvNeXt": (convnext, torch.linspace(0, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), "12 ConvNeXtBlock"),
    "Whisper": (
        whisper,
        {"input_features": torch.linspace(0, 1, 2 * 8 * 40).view(2, 8, 40), "labels": TOKENS},
        "2 WhisperEncoderLayer and 2 WhisperDecoderLayer",
    ),
}


def model_of(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().train()


def trained(model: nn.Module, batch: Any, steps: int = 2) -> list[torch.Tensor]:
    """Losses, and gradients, buffers and weights after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
    return [*found, *model.parameters(), *model.buffers()]


@pytest.mark.parametrize("name", MODELS)
def test_loss_gradients_and_buffers_are_bit_equal(name: str) -> None:
    make, batch, blocks = MODELS[name]
    plain = model_of(make)
    models = [copy.deepcopy(plain) for _ in range(3)]
    said = [str(checkpoint_blocks(models[0])), str(checkpoint_blocks(models[1], every=2))]
    # what torch keeps for a selective policy may not be changed in place, as ResNet's ReLU does with no such output
    checkpoint_blocks(models[2], keep="matmuls")
    if name == "T5" and IN_TRANSFORMERS_4:  # which adds to the product of a matmul in place
        with pytest.raises(UsageError, match=r"changes in place what keep=.matmuls. has kept of it"):
            trained(models.pop(), batch)
    assert said[0].startswith(f"{blocks} keep their inputs alone for the backward pass: ")
    expected = trained(plain, batch)
    for model in models:
        found = trained(model, batch)
        assert len(found) == len(expected)
        assert all(map(torch.equal, found, expected))


# KV caches (b5.4).


def cached_tokens(output: Any) -> set[int]:
    """How many tokens the cache holds of each block; GPT-2's was a tuple of tensors in transformers 4."""
    cache = output.past_key_values
    if isinstance(cache, tuple):
        return {keys.shape[-2] for keys, _ in cache}
    return {cache.get_seq_length(block) for block in range(3)}


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_cache_left_on_is_kept_and_written_twice_and_ours_is_off(make: Callable[[], nn.Module]) -> None:
    wrong = model_of(make)
    kinds = ("GPT2Block", "LlamaDecoderLayer")
    for block in [module for module in wrong.modules() if type(module).__name__ in kinds]:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    output = wrong(**WORDS)
    assert cached_tokens(output) == {12}
    with contextlib.suppress(CheckpointError):  # in transformers 4, whose mask does not hide what is written twice
        output.loss.backward()
    if not isinstance(output.past_key_values, tuple):  # which cannot be written into
        assert max(cached_tokens(output)) == 24  # of 12 tokens, in transformers 5 with no word said

    model = model_of(make)
    with checkpoint_blocks(model):
        assert model(**WORDS).past_key_values is None
        assert model(**WORDS, use_cache=True).past_key_values is None
        before_it = list(inspect.signature(type(model).forward).parameters)[2:].index("use_cache")
        assert model(TOKENS, *[None] * before_it, True).past_key_values is None
        with torch.no_grad():
            assert cached_tokens(model(**WORDS)) == {12}
        assert cached_tokens(model.eval()(**WORDS)) == {12}
        assert model.config.use_cache
        model.train()
    assert cached_tokens(model(**WORDS)) == {12}  # undone


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of names that transformers is about to change
def test_a_cache_that_is_given_in_training_is_refused() -> None:
    model = model_of(llama)
    cache = model.eval()(**WORDS).past_key_values
    checkpoint_blocks(model.train())
    with pytest.raises(UsageError) as error:
        model(input_ids=TOKENS, past_key_values=cache)
    assert str(error.value) == (
        "Block model.layers.0 was given a KV cache in training, a DynamicCache. Recomputation in the backward pass "
        "would write into it a second time. Do not pass a cache to a model that is trained with checkpointing; prefix "
        "tuning needs one, and cannot be checkpointed."
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of names that transformers is about to change
def test_a_model_of_transformers_that_checkpoints_itself_is_refused() -> None:
    model = model_of(llama)
    checkpointed = checkpoint_blocks(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with pytest.raises(UsageError) as error:
        model(**WORDS)
    assert str(error.value) == (
        "Blocks of LlamaModel were checkpointed a second time, by gradient_checkpointing_enable() or a Trainer's "
        "gradient_checkpointing=True, so each backward would compute them twice more. Leave one of the two out."
    )
    with torch.no_grad():
        model(**WORDS)
    checkpointed.undo()
    model(**WORDS)
    with pytest.raises(UsageError) as error:
        checkpoint_blocks(model)
    assert " is checkpointed already, at model" in str(error.value)
    assert str(error.value).endswith(
        ": by transformers; call model.gradient_checkpointing_disable() first, or keep that and leave this out. Twice "
        "would compute it again twice."
    )


def test_a_block_that_checkpoints_itself_in_a_model_that_does_not_say_so_is_refused() -> None:
    model = model_of(mlp)
    checkpoint_blocks(model)
    model[2].gradient_checkpointing = True  # as transformers 5 does it, in models such as ViT to the blocks alone
    with pytest.raises(UsageError) as error:
        model(MODELS["MLP"][1])
    assert str(error.value) == (
        "Block 2 was checkpointed a second time, by gradient_checkpointing_enable() or a Trainer's "
        "gradient_checkpointing=True, so each backward would compute it twice more. Leave one of the two out."
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of names that transformers is about to change
def test_lora_on_frozen_weights_is_verified() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.1)
    model = peft.get_peft_model(model_of(llama), config)
    plain = copy.deepcopy(model)
    checkpointed = checkpoint_blocks(model, verify=WORDS, loss_of=loss_of)
    assert checkpointed.verified.startswith("Verified on one batch: loss, 42 gradients and ")
    assert "are bit-equal" in checkpointed.verified
    assert all(map(torch.equal, trained(model, WORDS), trained(plain, WORDS)))


# Several ranks.


def test_in_ddp_and_both_fsdp_on_two_ranks(tmp_path: Path) -> None:
    run_on_ranks(2, checkpointing_ranks.start, 2, str(tmp_path))
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}")
        assert found["DDP, blocks"] == ("module.1", "module.2", "module.3")
        if "FSDP2" in checkpointing_ranks.WRAPS:
            assert found["FSDP2, blocks"] == ("1", "2", "3")
            assert found["FSDP2, said"].startswith("3 Block keep their inputs alone ")
        for name in checkpointing_ranks.WRAPS:
            assert found[f"{name}, before"] and found[f"{name}, after"] and found[f"{name}, undone"]
            assert "are bit-equal" in found[f"{name}, verified"]


# Bytes.


@pytest.fixture(scope="module")
def rehearse() -> Iterator[Callable[..., Result]]:
    with warm_rehearsals([PROGRAM], gpu=CARD, quiet=True, figures_only=True) as rehearse_one:
        yield lambda *arguments, **options: rehearse_one([PROGRAM, MEASURED, "language_model", *arguments], **options)


@pytest.mark.parametrize(
    ("measure", "arguments"),
    [
        ("checkpoint-blocks", ()),
        ("checkpoint-every-second", ("2",)),
        ("checkpoint-selective", ("1", "matmuls")),
    ],
)
def test_its_bytes_are_those_of_the_measure(
    rehearse: Callable[..., Result], measure: str, arguments: tuple[str, ...]
) -> None:
    planned = rehearse("plain", measures=[measure])
    ours = rehearse("ours", *arguments)
    for result in (planned, ours):
        assert result.ending.how == "steady", result.ending
    assert planned.measures == {measure: True}
    for figure in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_total_bytes", "phase_peaks"):
        assert getattr(ours, figure) == getattr(planned, figure), figure


def test_a_verification_does_not_stop_a_rehearsal_where_numbers_mean_nothing(rehearse: Callable[..., Result]) -> None:
    result = rehearse("ours", "1", "", "verify")
    assert result.ending.how == "steady", result.ending
