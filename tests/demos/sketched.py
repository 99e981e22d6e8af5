"""Mechanisms made by hand, one of each kind and a long one, as a run would draw them."""

from __future__ import annotations

from runnable_demos.lab.mechanisms import Box, Lanes, Mechanism, Shards, Span, Tile, Tiles
from runnable_demos.lab.metrics import Axis, Category, Kind, Series, Text

CROWDED = """svg => { const outer = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    const faults = [];
    boxes.forEach(([a, p], i) => {
        if (p.left < outer.left - 1 || p.right > outer.right + 1 || p.bottom > outer.bottom + 1
            || p.top < outer.top - 1) faults.push(a + ' is outside');
        boxes.slice(i + 1).forEach(([b, q]) => {
            const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (across > 1 && down > 4) faults.push(a + ' collides with ' + b);
        });
    });
    return faults; }"""
"""What a browser finds of the words of a drawing that collide, or leave it."""


def text(zh: str, en: str) -> Text:
    """The same words in both languages."""
    return {"zh": zh, "en": en}


def places(*names: str | int | Text) -> tuple[Category, ...]:
    """Rows, columns or groups; what is no pair of words is its own."""
    return tuple(
        Category(f"p{at}", text(str(name), str(name)) if isinstance(name, str | int) else name)
        for at, name in enumerate(names)
    )


def kinds(kind: Kind = "computed", **labels: Text) -> tuple[Series, ...]:
    """Kinds of parts."""
    return tuple(Series(name, label, (), (), "bar", kind) for name, label in labels.items())


def one_f_one_b(p: int, m: int) -> tuple[Span, ...]:
    """Each rank alternates after p − i − 1 forwards; a forward takes one slot, a backward two."""
    spans: list[Span] = []
    done: dict[tuple[str, int, int], int] = {}
    orders = [
        [("F", k) for k in range(p - i - 1)]
        + [op for k in range(m - p + i + 1) for op in (("F", k + p - i - 1), ("B", k))]
        + [("B", k) for k in range(m - p + i + 1, m)]
        for i in range(p)
    ]
    clock = [0] * p
    while any(orders):
        for i, order in enumerate(orders):
            if not order:
                continue
            kind, k = order[0]
            needs = [("F", i - 1, k)] if kind == "F" and i else []
            needs += [("B", i + 1, k)] if kind == "B" and i < p - 1 else []
            if all(need in done for need in needs):
                start = max([clock[i], *(done[need] for need in needs)])
                clock[i] = done[kind, i, k] = start + (1 if kind == "F" else 2)
                name = "forward" if kind == "F" else "backward"
                spans.append(Span(i, name, start, clock[i], f"{kind}{k + 1}"))
                order.pop(0)
    return tuple(sorted(spans, key=lambda span: (span.row, span.start)))


SCHEDULE = Lanes(
    "schedule",
    text("1F1B 的时间线", "1F1B over time"),
    Axis(text("时间（格）", "time (slots)")),
    Axis(text("卡", "rank"), categories=places(0, 1, 2, 3)),
    kinds(forward=text("前向", "forward"), backward=text("反向", "backward")),
    one_f_one_b(4, 8),
)
LIFETIMES = Lanes(
    "lifetimes",
    text("一步里张量的存活", "Tensors alive over a step"),
    Axis(text("时间", "time"), "s"),
    Axis(
        text("张量", "tensor"),
        categories=places(
            text("词嵌入的输出", "output of the embedding"), text("注意力分数", "attention scores"), "logits"
        ),
    ),
    kinds("measured", alive=text("存下", "saved"), sent=text("通信", "sent"), used=text("使用", "used")),
    (
        Span(0, "alive", 0, 0.009),
        Span(0, "used", 0.009, 0.01),
        Span(1, "alive", 0.001, 0.007, "256 MB"),
        Span(1, "sent", 0.007, 0.0075, "AR"),
        Span(2, "alive", 0.004, 0.0045),
    ),
)  # fmt: skip
TILES = Tiles(
    "tiles",
    text("因果注意力的分块", "Tiles of causal attention"),
    Axis(text("键块", "block of keys"), categories=places(0, 1, 2, 3)),
    Axis(text("查询块", "block of queries"), categories=places(0, 1, 2, 3)),
    kinds(
        done=text("已并入", "merged"), now=text("正在算", "at work"),
        skipped=text("跳过：全被遮盖", "skipped: masked"), later=text("还没到", "to come"),
    ),
    tuple(
        Tile(
            row, column,
            "skipped" if column > row else ("done", "now", "later")[
                ((row, column) >= (2, 1)) + ((row, column) > (2, 1))
            ],
            ("m = 0.7", "ℓ = 3.12", "o: 1/2") if (row, column) <= (2, 1) and column <= row else (),
        )
        for row in range(4) for column in range(4)
    ),
)  # fmt: skip
STAGES = Shards(
    "stages",
    text("ZeRO 各阶段每卡持有什么", "What each rank holds under ZeRO"),
    Axis(text("阶段", "stage"), categories=places(0, 1, 2, 3)),
    Axis(text("字节", "bytes"), "B"),
    kinds(
        weights=text("权重", "weights"), gradients=text("梯度", "gradients"),
        states=text("优化器状态", "optimizer states"),
    ),
    tuple(
        Box(stage, rank, kind, *((rank * whole / 4, (rank + 1) * whole / 4) if stage >= cut else (0, whole)), whole)
        for stage in range(4) for rank in range(4)
        for kind, whole, cut in (("weights", 4e9, 3), ("gradients", 4e9, 2), ("states", 24e9, 1))
    ),
)  # fmt: skip
SKETCHES: tuple[Mechanism, ...] = (SCHEDULE, LIFETIMES, TILES, STAGES)
