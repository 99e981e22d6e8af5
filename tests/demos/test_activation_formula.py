"""The activation formula against a closed form per variant, and fake tensors against real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runnable_demos import activation_formula
from runnable_demos.activation_formula import PRESETS, ledger, run
from runnable_demos.models.paper_gpt import (
    GPT3,
    PAPER,
    Departures,
    PaperAttention,
    PaperBlock,
    PaperMLP,
    Shape,
    paper_layer_bytes,
    repeated,
)

SHAPES = [Shape(8, 1, 16, 2), Shape(12, 3, 24, 4), Shape(20, 2, 40, 5)]
VARIANTS = [
    PAPER,
    Departures(dtype=torch.float16),
    Departures(dtype=torch.float32),
    Departures(dropout="none"),
    Departures(dropout="cpu"),
    Departures(dtype=torch.float32, dropout="cpu"),
    Departures(fused=True),
    Departures(dtype=torch.float32, dropout="none", fused=True),
    Departures(masked_fill=True),
]


def closed_form(shape: Shape, variant: Departures) -> int:
    """Every tensor that the backward needs, listed by hand, times its bytes."""
    s, b, h, a = shape.s, shape.b, shape.h, shape.a
    e = variant.dtype.itemsize
    mask = {"mask": 1, "cpu": e, "none": 0}[variant.dropout]
    wide = 2 + 1 + 3 + 1  # norms' inputs, attention's input, QKV, the projection's input
    wide += 1 + 4 + 4  # the MLP's input, GELU's, the second Linear's
    total = s * b * h * (wide * e + 2 * mask) + s * b * 2 * 2 * e  # two norms: mean and 1/σ
    if variant.fused:
        return total + 4 * a * s * b  # logsumexp, fp32; O is the projection's input
    square = e if variant.dropout == "none" else 2 * e + mask  # P; mask and dropped P
    return total + a * s * s * b * square + (s * s if variant.masked_fill else 0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_equal_the_list_by_hand(shape: Shape, variant: Departures) -> None:
    """Every variant at every size saves what the list says, to the byte."""
    assert paper_layer_bytes(shape, variant) == closed_form(shape, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_fake_equals_real(variant: Departures) -> None:
    """Fake tensors predict the bytes of a real run."""
    assert paper_layer_bytes(SHAPES[1], variant) == paper_layer_bytes(
        SHAPES[1], variant, real="cpu"
    )


def test_the_papers_equation() -> None:
    """sbh(34 + 5as/h) at GPT-3's size is 2 868 903 936, and the norms' statistics 8 bytes a token."""
    s, b, h, a = 2048, 1, 12288, 96
    equation = s * b * h * 34 + 5 * a * s * s * b
    assert equation == 2_868_903_936
    assert paper_layer_bytes(GPT3) == equation + 8 * s * b


def test_parts_add_up_and_layers_stack() -> None:
    """Attention, MLP and two norms make the block; n blocks make n times its bytes."""
    shape = SHAPES[2]
    norm_bytes = shape.s * shape.b * (2 * shape.h + 2 * 2)
    parts = (
        paper_layer_bytes(shape, part=PaperAttention)
        + paper_layer_bytes(shape, part=PaperMLP)
        + 2 * norm_bytes
    )
    assert parts == paper_layer_bytes(shape)
    assert paper_layer_bytes(shape, part=repeated(3)) == 3 * paper_layer_bytes(shape)


def test_block_computes_a_gpt_layer() -> None:
    """Without dropout the block equals PyTorch's own pre-norm layer with the same weights."""
    shape = Shape(7, 2, 16, 4)
    torch.manual_seed(0)
    ours = PaperBlock(shape, Departures(dtype=torch.float64, dropout="none"))
    theirs = torch.nn.TransformerEncoderLayer(
        16, 4, 64, dropout=0.0, activation="gelu", norm_first=True, dtype=torch.float64
    )
    # Ours holds Q, K, V head by head, theirs one after another.
    heads = ours.attention.qkv.weight.view(4, 3, 4, 16).transpose(0, 1).reshape(48, 16)
    biases = ours.attention.qkv.bias.view(4, 3, 4).transpose(0, 1).reshape(48)
    attention = theirs.self_attn
    with torch.no_grad():
        attention.in_proj_weight.copy_(heads)
        attention.in_proj_bias.copy_(biases)
    attention.out_proj.load_state_dict(ours.attention.out.state_dict())
    theirs.linear1.load_state_dict(ours.mlp.up.state_dict())
    theirs.linear2.load_state_dict(ours.mlp.down.state_dict())
    x = torch.randn(7, 2, 16, dtype=torch.float64)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x, src_mask=causal, is_causal=True))


def test_metrics() -> None:
    """The solved coefficients are the paper's, and the departures those of the list by hand."""
    metrics = {m.name: m.value for m in run(PRESETS["small"], lambda share, text: None).metrics}
    assert (metrics["linear"], metrics["quadratic"], metrics["per_token"]) == (34, 5, 8)
    assert metrics["coefficients_hold"] is True
    assert metrics["fake_equals_real"] is True
    parts = ("attention_linear", "attention_quadratic", "mlp_linear", "norms_linear")
    assert [metrics[p] for p in parts] == [11, 5, 19, 4]
    assert (metrics["fp32_linear"], metrics["fp32_quadratic"]) == (66, 9)
    assert (metrics["no_dropout_linear"], metrics["no_dropout_quadratic"]) == (32, 2)
    assert (metrics["cpu_dropout_linear"], metrics["cpu_dropout_quadratic"]) == (36, 6)
    assert metrics["masked_fill_extra"] == 1
    assert metrics["gpt3_stack"] == 3 * metrics["gpt3_layer"]
    assert metrics["gpt3_layer"] == closed_form(Shape(2048, 1, 12288, 96), PAPER)
    flash = closed_form(Shape(2048, 1, 12288, 96), Departures(fused=True))
    assert metrics["gpt3_layer_fused"] == flash
    assert metrics["gpt3_fused_ratio"] == pytest.approx(metrics["gpt3_layer"] / flash, rel=1e-12)
    assert metrics["gpt3_fused_per_sbh"] == 34 + (4 * 96 + 8) / 12288


def test_another_law_and_another_reading_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that grow with the cube of s fit no such formula; a byte apart is not equal."""

    def bent(shape: Shape, *arguments: Any, **options: Any) -> int:
        real = "real" in options or len(arguments) > 2
        return paper_layer_bytes(shape, *arguments, **options) + shape.s**3 + real

    monkeypatch.setattr(activation_formula, "paper_layer_bytes", bent)
    metrics = {m.name: m.value for m in run(PRESETS["small"], lambda share, text: None).metrics}
    assert metrics["coefficients_hold"] is False
    assert metrics["fake_equals_real"] is False


def by_hand(shape: Shape) -> list[tuple[int, str, float, str]]:
    """What each of 13 operators adds to the ledger over sbh, in the order of the forward."""
    stats = 2 + 2 * 2 / shape.h  # the input, and two numbers of two bytes a row
    matrix = shape.a * shape.s / shape.h  # an s×s matrix of one byte
    return [
        (0, "linear", stats, "2"),
        (1, "linear", 2, "2"),
        (2, "linear", 6, "6"),
        (3, "square", 2 * matrix, f"{2 * matrix:.0f}"),
        (4, "mask", matrix, f"{matrix:.0f}"),
        (5, "square", 2 * matrix, f"{2 * matrix:.0f}"),
        (6, "linear", 2, "2"),
        (7, "mask", 1, "1"),
        (8, "linear", stats, "2"),
        (9, "linear", 2, "2"),
        (10, "linear", 8, "8"),
        (11, "linear", 8, "8"),
        (12, "mask", 1, "1"),
    ]


@pytest.mark.parametrize("shape", [Shape(24, 3, 32, 4), GPT3])
def test_ledger_by_hand(shape: Shape) -> None:
    """Each operator's bytes go on where the last ended; V alone is needed again, where Q, K, V lie."""
    spans = ledger(shape)
    end = 0.0
    new = [span for span in spans if span.kind != "shared"]
    for span, (row, kind, size, label) in zip(new, by_hand(shape), strict=True):
        assert (span.row, span.kind, span.label) == (row, kind, label)
        assert (span.start, span.end) == pytest.approx((end, end + size), rel=1e-12)
        end += size
    assert end * shape.s * shape.b * shape.h == pytest.approx(paper_layer_bytes(shape), rel=1e-12)
    (again,) = (span for span in spans if span.kind == "shared")
    assert (again.row, again.start, again.end) == (5, new[2].start, new[2].end)


def test_ledger_knows_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another function where one is expected is named, not drawn."""
    monkeypatch.setitem(activation_formula.OPERATORS, "gelu", "relu")
    with pytest.raises(ValueError, match="gelu saves where relu"):
        ledger(SHAPES[0])
