"""Repeated blocks are found by structure, in models of every make."""

from __future__ import annotations

import pytest

from dryfit.measures.blocks import block_kinds, blocks_in_code, blocks_in_words, repeated_blocks

torch = pytest.importorskip("torch")
nn = torch.nn


class DoubleConv(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        layers = (nn.Conv2d(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU())
        more = (nn.Conv2d(outputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU())
        self.layers = nn.Sequential(*layers, *more)


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs))


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(inputs, outputs, 2, 2), DoubleConv(inputs, outputs)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = DoubleConv(3, 4)
        self.down = nn.ModuleList(Down(4 << level, 8 << level) for level in range(3))
        self.up = nn.ModuleList(Up(8 << level, 4 << level) for level in reversed(range(3)))
        self.last = nn.Conv2d(4, 2, 1)


class TwoMatrices(nn.Module):
    """A block of a person's own that has weights and no layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Parameter(torch.ones(4, 8)), nn.Parameter(torch.ones(8, 4))


class Nested(nn.Module):
    """A module that holds another of its class."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.inner = Nested(depth - 1) if depth else None


def of_torch(kind: str) -> nn.Module:
    return {
        "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 3),
        "transformer": lambda: nn.Transformer(8, 2, 2, 3, 16),
        "linear": lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(8))),
        "lstm": lambda: nn.ModuleList(nn.LSTM(4, 4) for _ in range(3)),
        "sequential": lambda: nn.Sequential(
            *(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)) for _ in range(4)), nn.Linear(4, 2)
        ),
        "own": lambda: nn.ModuleList(TwoMatrices() for _ in range(3)),
        "nested": lambda: Nested(4),
        "U-Net": UNet,
        "wrapped": lambda: torch.nn.DataParallel(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 3)),
    }[kind]()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("encoder", {"TransformerEncoderLayer": 3}),
        ("transformer", {"TransformerEncoderLayer": 2, "TransformerDecoderLayer": 3}),
        ("linear", {}),
        ("lstm", {}),
        ("sequential", {"Sequential": 4}),
        ("own", {"TwoMatrices": 3}),
        ("nested", {}),
        ("U-Net", {"DoubleConv": 7}),
        ("wrapped", {"TransformerEncoderLayer": 3}),
    ],
)
def test_models_of_ones_own(kind: str, found: dict[str, int]) -> None:
    assert block_kinds(of_torch(kind)) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("resnet18", {"BasicBlock": 8}),
        ("resnet152", {"Bottleneck": 50}),
        ("densenet121", {"_DenseLayer": 58}),
        ("efficientnet_b0", {"MBConv": 16}),
        ("inception_v3", {"InceptionA": 3, "InceptionC": 4, "InceptionE": 2}),
        ("vit_b_16", {"EncoderBlock": 12}),
        ("swin_t", {"SwinTransformerBlock": 12}),
        ("vgg11", {}),
    ],
)
@pytest.mark.filterwarnings("ignore:The default weight initialization of inception_v3:FutureWarning")
def test_torchvision(name: str, found: dict[str, int]) -> None:
    torchvision = pytest.importorskip("torchvision")
    with torch.random.fork_rng():
        assert block_kinds(torchvision.models.get_model(name)) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vit_tiny_patch16_224", {"Block": 12}),
        ("convnext_atto", {"ConvNeXtBlock": 12}),
        ("resnet50", {"Bottleneck": 16}),
    ],
)
def test_timm(name: str, found: dict[str, int]) -> None:
    timm = pytest.importorskip("timm")
    assert block_kinds(timm.create_model(name)) == found


_SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 32}


@pytest.mark.parametrize(
    ("kind", "settings", "found"),
    [
        ("gpt2", {"n_layer": 2, "n_embd": 16, "n_head": 2}, {"GPT2Block": 2}),
        ("llama", {"num_hidden_layers": 3, **_SMALL}, {"LlamaDecoderLayer": 3}),
        ("bert", {"num_hidden_layers": 3, **_SMALL}, {"BertLayer": 3}),
        ("t5", {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2}, {"T5Block": 4}),
        (
            "bart",
            {"encoder_layers": 2, "decoder_layers": 3, "d_model": 16, "vocab_size": 32},
            {"BartEncoderLayer": 2, "BartDecoderLayer": 3},
        ),
    ],
)
def test_transformers(kind: str, settings: dict[str, int], found: dict[str, int]) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **settings)
    assert block_kinds(transformers.AutoModel.from_config(config)) == found


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_leave_the_blocks_what_they_are() -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    config = transformers.LlamaConfig(num_hidden_layers=3, **_SMALL)
    model = transformers.LlamaForCausalLM(config)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert block_kinds(adapted) == {"LlamaDecoderLayer": 3}


def test_blocks_come_in_the_models_order_and_none_is_inside_another() -> None:
    model = UNet()
    blocks = repeated_blocks(model)
    assert blocks == [module for module in model.modules() if isinstance(module, DoubleConv)]
    assert not any(
        other is inner for block in blocks for inner in block.modules() for other in blocks if other is not block
    )


def test_a_shared_module_is_one_block() -> None:
    layer = nn.TransformerEncoderLayer(8, 2)
    assert block_kinds(nn.ModuleList([layer, layer, nn.TransformerEncoderLayer(8, 2)])) == {
        "TransformerEncoderLayer": 2
    }


def test_in_words_and_in_code() -> None:
    kinds = {"A": 3, "B": 4, "C": 2}
    assert blocks_in_words(kinds) == "3 A, 4 B and 2 C"
    assert blocks_in_words({}) == ""
    assert blocks_in_code(kinds) == "(A, B, C)"
