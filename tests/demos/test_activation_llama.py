"""A Llama-style layer's saved bytes against tensors listed by hand."""

from __future__ import annotations

import pytest
import torch

from runnable_demos import activation_llama
from runnable_demos.activation_llama import LLAMA_3_8B, PRESETS, ledger, run, stack_bytes
from runnable_demos.models.llama import LLAMA_7B, Norm, Size, Variant, llama_layer_bytes

SIZES = [Size(24, 40, 1, 6, 2), Size(64, 100, 1, 4, 4), Size(48, 33, 1, 8, 1)]
VARIANTS = [
    Variant(),
    Variant(dtype=torch.float32),
    Variant(attention="math"),
    Variant(gate="fused"),
    Variant(norm="functional"),
    Variant(norm="eager"),
    Variant("math", "fused", "functional"),
]


def closed_form(size: Size, b: int, s: int, variant: Variant) -> int:
    """Every tensor that the backward needs, listed by hand, times its bytes."""
    e = variant.dtype.itemsize
    h, f, a, gd = size.h, size.f, size.a, size.g * size.h // size.a
    per_token = e * (h + h)  # what attention and the MLP take in: the norms' outputs
    if variant.norm == "fused":
        per_token += 2 * (e * h + 4)
    elif variant.norm == "functional":  # input and normalised input in fp32, and 1/rms
        per_token += 2 * (4 * h + 4 * h + 4)
    else:  # input in fp32, 1/rms, and what is multiplied by the weight, in the layer's dtype
        per_token += 2 * (4 * h + e * h + 4)
    per_token += e * h  # Q
    if variant.attention == "flash" or size.g == a:
        per_token += e * 2 * gd  # K, V
    else:
        per_token += e * 2 * h  # K, V copied for each query head
    per_token += e * h  # O
    per_token += e * f * {"composed": 4, "fused": 3}[variant.gate]
    if variant.attention == "flash":
        return b * s * (per_token + 4 * a)
    return b * s * per_token + b * a * s * s * e


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", SIZES)
def test_bytes_equal_the_list_by_hand(size: Size, variant: Variant) -> None:
    """Every variant at every size saves what the list says, on fake and on real tensors."""
    expected = closed_form(size, 3, 10, variant)
    assert llama_layer_bytes(size, 3, 10, variant) == expected
    assert llama_layer_bytes(size, 3, 10, variant, real="cpu") == expected


def test_seven_billion_by_hand() -> None:
    """Llama 2 7B, batch 1, 4096 tokens: 4096 (16·4096 + 8·11008 + 4·32 + 8) bytes a layer, 32 layers."""
    layer = 4096 * (16 * 4096 + 8 * 11008 + 4 * 32 + 8)
    assert layer == 629_702_656
    assert llama_layer_bytes(LLAMA_7B, 1, 4096) == layer
    assert stack_bytes(LLAMA_7B, 4096) == 32 * layer == 20_150_484_992


def test_metrics() -> None:
    """The solved coefficients are those of the list by hand."""
    metrics = {m.name: m.value for m in run(PRESETS["small"], lambda share, text: None).metrics}
    names = ("hidden", "gate", "keys", "heads", "squares", "per_token")
    assert [metrics[n] for n in names] == [12, 8, 4, 4, 0, 8]
    assert [metrics[n] for n in ("math_hidden", "math_keys", "math_squares")] == [16, 0, 2]
    assert metrics["fused_gate"] == 6
    assert metrics["functional_norm_hidden"] == 12 + 2 * (4 + 4 - 2)
    assert metrics["eager_norm_hidden"] == 12 + 2 * (4 + 2 - 2)
    for norm, hidden in (("functional", 24), ("eager", 20)):
        expected = hidden + 4 + (8 * 11008 + 4 * 32 + 8) / 4096
        assert metrics[f"llama_7b_{norm}_norm_per_sbh"] == expected
        layer = expected * 256 * 4096
        assert metrics[f"llama_7b_{norm}_norm_layer"] == layer
        assert metrics[f"llama_7b_{norm}_norm_stack"] == min(32, PRESETS["small"].layers) * layer
    assert metrics["coefficients_hold"] is True
    assert metrics["fake_equals_real"] is True
    shares = ("attention_share", "mlp_share", "norms_share")
    assert sum(metrics[n] for n in shares) == pytest.approx(1, abs=1e-12)
    assert metrics["llama_7b_per_sbh"] == 16 + (8 * 11008 + 4 * 32 + 8) / 4096


def test_models_by_hand() -> None:
    """A layer of each Llama at the small length, with flash and with written-out attention."""
    config = PRESETS["small"]
    metrics = {m.name: m.value for m in run(config, lambda share, text: None).metrics}
    sizes = {  # h, f, L, a, g of Touvron et al. 2023
        "7b": Size(4096, 11008, 32, 32, 32),
        "13b": Size(5120, 13824, 40, 40, 40),
        "70b": Size(8192, 28672, 80, 64, 8),
    }
    for name, size in sizes.items():
        layer = closed_form(size, 1, config.tokens, Variant())
        assert metrics[f"llama_{name}_layer"] == layer
        assert metrics[f"llama_{name}_stack"] == min(size.L, config.layers) * layer
        assert metrics[f"llama_{name}_per_sbh"] == layer / (config.tokens * size.h)
        math = closed_form(size, 1, config.tokens, Variant(attention="math"))
        assert metrics[f"llama_{name}_math_layer"] == math


def test_another_law_and_another_reading_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that grow with the cube of s fit no such formula; a byte apart is not equal."""

    def bent(size: Size, b: int, s: int, *arguments: object, **options: object) -> int:
        real = "real" in options
        return llama_layer_bytes(size, b, s, *arguments, **options) + s**3 + real  # type: ignore[arg-type]

    monkeypatch.setattr("runnable_demos.activation_llama.llama_layer_bytes", bent)
    metrics = {m.name: m.value for m in run(PRESETS["small"], lambda share, text: None).metrics}
    assert metrics["coefficients_hold"] is False
    assert metrics["fake_equals_real"] is False


@pytest.mark.parametrize("how", ["fused", "eager"])
@pytest.mark.parametrize("size", [Size(64, 100, 1, 4, 2), LLAMA_3_8B])
def test_ledger_by_hand(size: Size, how: Norm) -> None:
    """What each operator adds over sbh, and what it needs again, in the order of the forward."""
    s, keys, wide = 32, 2 * size.g / size.a, 2 * size.f / size.h
    row = 4 / size.h  # a number in fp32 for each row
    norm: dict[Norm, list[tuple[str, float]]] = {
        "fused": [("half", 2), ("wide", row)],
        "eager": [("wide", 4), ("wide", row), ("half", 2)],
    }
    spans, rows = ledger(size, s, how, 5)
    assert rows == [
        "norm1",
        *"qkv",
        "core",
        "out",
        "norm2",
        "gate",
        "up",
        "silu",
        "product",
        "down",
    ]
    new: dict[int, list[tuple[str, float]]] = {
        0: norm[how],
        1: [("half", 2)],
        4: [("half", keys), ("half", 2), ("half", keys), ("wide", size.a * row), ("half", 2)],
        6: norm[how],
        7: [("half", 2)],
        9: [("half", wide)],
        10: [("half", wide), ("half", wide)],
        11: [("half", wide)],
    }
    expected = [(5 + at, kind, width) for at, parts in new.items() for kind, width in parts]
    end = 0.0
    for span, (at, kind, width) in zip(
        (span for span in spans if span.kind != "shared"), expected, strict=True
    ):
        assert (span.row, span.kind) == (at, kind)
        assert (span.start, span.end) == pytest.approx((end, end + width), rel=1e-12)
        assert span.label == (f"{width:g}" if width >= 0.5 else "")
        end += width
    assert end * s * size.h == pytest.approx(closed_form(size, 1, s, Variant(norm=how)), rel=1e-12)
    last = {span.row: span for span in spans if span.kind != "shared"}  # of each row
    shared = [(span.row, span.start, span.end) for span in spans if span.kind == "shared"]
    owners = {7: 6, 8: 6, 10: 9, 13: 12}  # K and V as Q; out as attention's O; up as gate
    assert shared == [(row, last[own].start, last[own].end) for row, own in owners.items()]


def test_ledger_knows_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another function where one is expected is named, not drawn."""
    monkeypatch.setitem(activation_llama.NORMS, "eager", ("pow", "rsqrt", "mul", "add"))
    with pytest.raises(ValueError, match="mul saves where add"):
        ledger(SIZES[0], 8, "eager", 0)
