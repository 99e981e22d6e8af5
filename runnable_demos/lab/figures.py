"""Draw a figure of the evidence as SVG, in one language, for light and dark alike.

Lines, bars and areas are drawn here; ``sketches`` has what shows how something works.
Colours are CSS variables with a fallback. The same figure gives the same bytes.
No torch: sites are built from evidence alone.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Collection
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from runnable_demos.lab import sketches
from runnable_demos.lab.colours import COLOURS, as_file
from runnable_demos.lab.lettering import (
    BOLD,
    FONT,
    LINE,
    NARROW,
    SMALL,
    WIDE,
    head,
    legible,
    text_width,
    wrap,
)
from runnable_demos.lab.mechanisms import Mechanism
from runnable_demos.lab.metrics import Axis, Figure, Series
from runnable_demos.lab.scales import Scale, round_places, scale_for

PLOT_HEIGHT = {WIDE: 300, NARROW: 200}
BAR_HEIGHT = 30
LEFT, RIGHT = 62, {WIDE: 24, NARROW: 14}
LOWER = 17
"""Pixels from a line of a wrapped name to the next."""

PEAK = {"zh": "峰值", "en": "peak"}

# matplotlib wants colours, and knows no CSS: each variable goes through it as a colour of its own.
_INK = {name: f"#0a0b{number:02x}" for number, name in enumerate(COLOURS, start=0x40)}
_SERIES = [name for name in COLOURS if name.isdigit()]
_MARKERS = "osD^vP"
_TAG = re.compile(r"<[^>]*>")  # matplotlib escapes both brackets in words and in attributes

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "proofdeck",
    "text.parse_math": False,
    "font.size": FONT,
    "font.family": "DejaVu Sans",  # comes with matplotlib; only its heights are used
    "axes.unicode_minus": True,
    "path.simplify": True,
}


def draw(
    figure: Figure, lang: str, *, prefix: str, standalone: bool = False, narrow: bool = False
) -> str:
    """The SVG of ``figure`` in ``lang`` (``zh`` or ``en``).

    ``prefix`` begins every id in it, so that many figures can stand on one page.
    A ``standalone`` file carries its title, its ground and both colour schemes;
    otherwise the page sets ``--pd-fig-fg``, ``--pd-fig-1`` and the others.
    ``narrow`` asks for the drawing for a narrow screen.
    """
    if isinstance(figure, Mechanism):
        return sketches.draw(figure, lang, prefix=prefix, standalone=standalone, narrow=narrow)
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # matplotlib's own font lacks 汉字; the reader's has them.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        canvas = _Drawing(figure, lang, NARROW if narrow else WIDE, standalone).canvas()
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(canvas).print_svg(buffer, metadata=nothing)  # type: ignore[no-untyped-call]
    return _finish(buffer.getvalue(), figure, lang, prefix, standalone)


_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


# --- drawing -------------------------------------------------------------------------------------


class _Drawing:
    """One figure in one language, from layout to canvas."""

    def __init__(self, figure: Figure, lang: str, width: int, standalone: bool) -> None:
        self.figure = figure
        self.lang = lang
        self.width, self.right = width, RIGHT[width]
        self.peaks: list[tuple[float, float]] = []
        self.bars = any(s.mark == "bar" for s in figure.series)
        self.places, self.names = self._categories()
        binary = figure.y.scale == "log2"
        self.y_scale = scale_for(self._heights(), figure.y.unit, binary)
        self.x_scale = scale_for(
            [v for s in figure.series for v in s.x], figure.x.unit, figure.x.scale == "log2"
        )
        self.slot = (width - LEFT - self.right) / max(1, len(self.names))
        self.lying = self._lies()
        room = 0.42 * width if self.lying else 0.95 * self.slot
        lines = [wrap(name, room, FONT) for name in self.names]
        self.names = ["\n".join(each) for each in lines]
        most = max(map(len, lines), default=1)
        self.left: float = LEFT
        if self.lying:
            self.left = 14 + max(text_width(line) for each in lines for line in each)
        self.across = width - self.left - self.right
        pitch = max(BAR_HEIGHT, LOWER * most + 4)
        self.plot = pitch * len(self.names) + 8 if self.lying else PLOT_HEIGHT[width]
        title = wrap(self.words(figure.title), (width - 16) / BOLD, FONT + 2)
        self.title = title if standalone else []
        self.legend, below = self._legend()
        standing, lying = (figure.y, self.y_scale), (figure.x, self.x_scale)
        self.along = [] if self.lying else wrap(self._axis_label(*standing), width - 16, FONT)
        self.below = wrap(self._axis_label(*(standing if self.lying else lying)), width - 16, FONT)
        self.top = 14 + LINE * len(self.title) + below + LINE * len(self.along)
        under = len(self.below) - 1 + (0 if self.lying else most - 1)
        self.height = self.top + self.plot + 52 + LOWER * under

    def _lies(self) -> bool:
        """Whether bars lie, with their names beside them, since below them these have no room."""
        flat = all(s.mark in ("bar", "measured", "theory") for s in self.figure.series)
        if not flat or not self.names or self.figure.y.scale != "linear":
            return False
        words = [line for name in self.names for line in wrap(name, 0.95 * self.slot, FONT)]
        widest = max(map(text_width, self.names if self.bars else words))
        numbers = (text_width(self.y_scale.number(each, 3), SMALL) for each in self._totals())
        return len(self.names) > 6 or max(widest, *numbers, 0.0) > 0.95 * self.slot

    def words(self, text: Any) -> str:
        """``text`` in this drawing's language."""
        return legible(text[self.lang])

    def _categories(self) -> tuple[list[float], list[str]]:
        """Places on the x axis that have names, and the names; none where it is numeric."""
        axis, series = self.figure.x, self.figure.series
        if axis.categories:
            return list(range(len(axis.categories))), [self.words(c.label) for c in axis.categories]
        if self.bars:
            places = sorted({x for s in series for x in s.x})
            scale = scale_for(places, axis.unit)
            return places, [scale.number(x) for x in places]
        return [], []

    def _heights(self) -> list[float]:
        """All heights, where stacked ones count as a stack."""
        stacks: dict[float, float] = {}
        heights = []
        for s in self.figure.series:
            for x, y in zip(s.x, s.y, strict=True):
                stacks[x] = stacks.get(x, 0.0) + (y if s.mark in ("bar", "area") else 0.0)
                heights.append(y)
        return [*heights, *stacks.values()]

    def _legend(self) -> tuple[list[tuple[float, float, int, list[str]]], float]:
        """Each entry's place, the number of its series and its lines; and how high they are in all."""
        if len(self.figure.series) == 1:
            return [], 0.0
        entries: list[tuple[float, float, int, list[str]]] = []
        x, y, high = 8.0, 0.0, float(LINE)
        for number, series in enumerate(self.figure.series):
            lines = wrap(self.words(series.label), self.width - 16 - 34, FONT)
            wide = 34 + max(map(text_width, lines)) + 14
            if x > 8 and x + wide > self.width - 8:
                x, y, high = 8.0, y + high, float(LINE)
            entries.append((x, y, number, lines))
            x, high = x + wide, max(high, LINE + LOWER * (len(lines) - 1.0))
        return entries, y + high

    def canvas(self) -> Canvas:
        """The finished drawing."""
        canvas = Canvas(figsize=(self.width / 72, self.height / 72), dpi=72)
        canvas.patch.set_visible(False)
        axes = canvas.add_axes(
            (
                self.left / self.width,
                1 - (self.top + self.plot) / self.height,
                self.across / self.width,
                self.plot / self.height,
            )
        )
        self._plain(axes)
        draw = self._draw_lying if self.lying else self._draw_standing
        draw(axes)
        self._write(canvas)
        return canvas

    def _plain(self, axes: Axes) -> None:
        axes.patch.set_visible(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0, colors=_INK["muted"], labelsize=SMALL, pad=6)
        axes.minorticks_off()

    def _write(self, canvas: Canvas) -> None:
        """Title, legend and the names of the axes, in pixels from the top left."""
        y = 8 + LINE / 2

        def text(x: float, y: float, words: str, ink: str = "fg", **more: Any) -> None:
            place = (x / self.width, 1 - y / self.height)
            canvas.text(*place, words, color=_INK[ink], va="center", **more)

        for line in self.title:
            text(8, y, line, fontsize=FONT + 2, fontweight="bold")
            y += LINE
        for x, down, number, lines in self.legend:
            self._legend_mark(canvas, x, y + down, number)
            for at, line in enumerate(lines):
                text(x + 34, y + down + LOWER * at, line)
        y = self.top - 6 - LINE * (len(self.along) - 0.5)
        for at, line in enumerate(self.along):
            text(8, y + LINE * at, line, "muted")
        room = all(text_width(line) <= self.across for line in self.below)
        middle = self.left + self.across / 2 if room else self.width / 2
        for at, line in enumerate(reversed(self.below)):
            text(middle, self.height - 13 - LOWER * at, line, "muted", ha="center")

    def _axis_label(self, axis: Axis, scale: Scale) -> str:
        label = self.words(axis.label)
        if not scale.unit or (axis.scale != "linear" and scale.unit != axis.unit):
            return label  # a log axis has the units on its ticks
        return f"{label}（{scale.unit}）" if self.lang == "zh" else f"{label} ({scale.unit})"

    def _legend_mark(self, canvas: Canvas, x: float, y: float, number: int) -> None:
        series = self.figure.series[number]
        across = [x / self.width, (x + 26) / self.width]
        down = 1 - y / self.height
        if series.mark in ("bar", "area"):
            canvas.add_artist(
                Rectangle(
                    (across[0] + 8 / self.width, down - 6 / self.height),
                    14 / self.width,
                    12 / self.height,
                    color=self._ink(number),
                    linewidth=0,
                )
            )
            return
        line = self._is_line(series)
        if line:
            canvas.add_artist(Line2D(across, [down, down], **self._line(number, legend=True)))
        if series.mark == "measured" or not line:
            middle = [sum(across) / 2]
            canvas.add_artist(Line2D(middle, [down], **self._points(number)))

    # --- series ---

    def _is_line(self, series: Series) -> bool:
        """Whether a line joins the points: not between names, and not through a cloud."""
        rising = list(series.x) == sorted(series.x)
        falling = list(series.x) == sorted(series.x, reverse=True)
        return series.mark == "step" or (not self.figure.x.categories and (rising or falling))

    def _ink(self, number: int) -> str:
        return _INK[_SERIES[number % len(_SERIES)]]

    def _line(self, number: int, legend: bool = False) -> dict[str, Any]:
        theory = self.figure.series[number].mark == "theory"
        dashes = (0, (5, 3)) if theory else "solid"
        style: dict[str, Any] = {"color": self._ink(number), "linestyle": dashes}
        style["linewidth"] = 2.0 if theory or legend else 1.6
        style["zorder"] = 3 if theory else 2  # dashes over a line show both
        return style

    def _points(self, number: int) -> dict[str, Any]:
        theory = self.figure.series[number].mark == "theory"
        small = self._is_line(self.figure.series[number])
        return {
            "color": self._ink(number),
            "marker": _MARKERS[number % len(_MARKERS)],
            "markersize": 10 if theory else 5.5 if small else 7,
            "linestyle": "none",
            "markerfacecolor": "none" if theory else self._ink(number),
            "markeredgewidth": 1.5 if theory else 0,
            "zorder": 4,
        }

    def _x(self, series: Series) -> list[float]:
        """Where the points of ``series`` stand on the axis."""
        if not self.places:
            return list(series.x)
        return [self.places.index(x) for x in series.x]

    def _draw_standing(self, axes: Axes) -> None:
        stack = _Stack()
        areas = [n for n, s in enumerate(self.figure.series) if s.mark == "area"]
        for number, series in enumerate(self.figure.series):
            xs, ys = self._x(series), list(series.y)
            if series.mark == "bar":
                bottoms = stack.add(xs, ys)
                axes.bar(xs, ys, 0.62, bottoms, color=self._ink(number), **self._edge())
                self._label_parts(axes, xs, bottoms, ys)
            elif series.mark == "area":
                bottoms = stack.add(xs, ys)
                tops = [b + y for b, y in zip(bottoms, ys, strict=True)]
                axes.fill_between(
                    xs, bottoms, tops, step="post", color=self._ink(number), linewidth=0
                )
            elif series.mark == "step":
                axes.step(xs, ys, where="post", clip_on=False, **self._line(number))
            else:
                line = self._is_line(series)
                if line:
                    axes.plot(xs, ys, clip_on=False, **self._line(number))
                if series.mark == "measured" or not line:
                    axes.plot(xs, ys, clip_on=False, **self._points(number))
        self._axes_standing(axes)
        if self.bars:
            for x, total in stack.totals.items():
                self._total(axes, x, total, lying=False)
        if areas:
            self._peak(axes, stack.totals)
        for series in self.figure.series:
            if series.mark == "step":
                self._peak(axes, dict(zip(self._x(series), series.y, strict=True)))

    def _draw_lying(self, axes: Axes) -> None:
        stack = _Stack()
        for number, series in enumerate(self.figure.series):
            xs, ys = self._x(series), list(series.y)
            if series.mark == "bar":
                lefts = stack.add(xs, ys)
                axes.barh(xs, ys, 0.68, lefts, color=self._ink(number), **self._edge())
                self._label_parts(axes, xs, lefts, ys)
            else:  # a line between names would say nothing
                axes.plot(ys, xs, clip_on=False, **self._points(number))
        axes.set_ylim(len(self.names) - 0.5, -0.5)
        axes.set_yticks(range(len(self.names)), self.names, color=_INK["fg"])
        high = self._largest() * self._above()
        axes.set_xlim(0, high)
        self._ticks(axes.xaxis, self.figure.y, self.y_scale, (0, high))
        axes.xaxis.grid(visible=True, color=_INK["grid"], linewidth=1)
        axes.set_axisbelow(True)
        for place, total in stack.totals.items():
            self._total(axes, place, total, lying=True)

    def _edge(self) -> dict[str, Any]:
        return {"edgecolor": _INK["bg"], "linewidth": 1, "clip_on": False}

    def _label_parts(
        self, axes: Axes, places: list[float], starts: list[float], sizes: list[float]
    ) -> None:
        """Write each part's number into it where it has room; a lone part has it at its end."""
        if len(self.figure.series) == 1:
            return
        along = (self.across if self.lying else self.plot) / (self._above() * self._largest())
        for place, start, size in zip(places, starts, sizes, strict=True):
            words = self.y_scale.number(size, 3)
            wide = text_width(words, SMALL)
            room = size * along >= (wide + 6 if self.lying else 16)
            if not room or (not self.lying and wide > 0.62 * self.slot):
                continue
            at = (start + size / 2, place) if self.lying else (place, start + size / 2)
            axes.text(*at, words, ha="center", va="center", color=_INK["bg"], fontsize=SMALL)

    def _totals(self) -> list[float]:
        stack = _Stack()
        for series in self.figure.series:
            if series.mark == "bar":
                stack.add(self._x(series), list(series.y))
        return list(stack.totals.values())

    def _largest(self) -> float:
        return max(self._heights(), default=1.0) or 1.0

    def _above(self) -> float:
        """How far the axis of heights goes above the highest, so that its number has room."""
        if not self.lying:
            return 1.09
        numbers = (text_width(self.y_scale.number(each, 3), SMALL) for each in self._totals())
        over = max(numbers, default=0.0) + 8 - self.right
        return max(1.09, self.across / (self.across - over))

    def _total(self, axes: Axes, place: float, total: float, *, lying: bool) -> None:
        at, offset = ((total, place), (5, 0)) if lying else ((place, total), (0, 4))
        axes.annotate(
            self.y_scale.number(total, 3),
            at,
            offset,
            textcoords="offset points",
            ha="left" if lying else "center",
            va="center" if lying else "bottom",
            color=_INK["fg"],
            fontsize=SMALL,
            annotation_clip=False,
        )

    def _peak(self, axes: Axes, totals: dict[float, float]) -> None:
        """Mark the highest point with a line down to the axis and its value."""
        if not totals:
            return
        x, top = max(totals.items(), key=lambda point: point[1])
        across, up = axes.transData.transform((x, top))
        left_half = across < self.left + self.across / 2
        axes.plot([x, x], [0, top], color=_INK["fg"], linewidth=1.2, linestyle=(0, (2, 2)))
        axes.plot([x], [top], color=_INK["fg"], marker="o", markersize=5, markeredgewidth=0)
        words = f"{PEAK[self.lang]} {scale_for([top], self.figure.y.unit).show(top)}"
        wide = text_width(words, SMALL) * BOLD + 8
        box = (across if left_half else across - wide, up)
        if any(abs(box[0] - a) < wide and abs(up - b) < 16 for a, b in self.peaks):
            return  # another's number stands there
        self.peaks.append(box)
        axes.annotate(
            words,
            (x, top),
            (8 if left_half else -8, 8),
            textcoords="offset points",
            ha="left" if left_half else "right",
            color=_INK["fg"],
            fontsize=SMALL,
            fontweight="bold",
            annotation_clip=False,
        )

    # --- axes ---

    def _axes_standing(self, axes: Axes) -> None:
        x_values = [x for s in self.figure.series for x in self._x(s)] or [0.0]
        heights = self._heights() or [0.0]
        if self.places or self.names:
            axes.set_xlim(-0.6, len(self.names) - 0.4)
            axes.set_xticks(range(len(self.names)), self.names, color=_INK["fg"])
        else:
            self._limits(axes.set_xlim, axes.set_xscale, self.figure.x, x_values, 0.02)
            self._ticks(axes.xaxis, self.figure.x, self.x_scale, axes.get_xlim())
        if self.figure.y.scale == "linear":
            low, high = min(0.0, *heights), max(0.0, *heights)
            span = (high - low) or 1.0
            axes.set_ylim(low - (0.05 * span if low < 0 else 0), high + 0.09 * span)
        else:
            self._limits(axes.set_ylim, axes.set_yscale, self.figure.y, heights, 0.06)
        self._ticks(axes.yaxis, self.figure.y, self.y_scale, axes.get_ylim())
        axes.yaxis.grid(visible=True, color=_INK["grid"], linewidth=1)
        axes.set_axisbelow(True)
        axes.spines["bottom"].set(visible=True, color=_INK["muted"], linewidth=1)

    def _limits(
        self,
        set_limits: Callable[..., Any],
        set_scale: Callable[..., Any],
        axis: Axis,
        values: list[float],
        margin: float,
    ) -> None:
        if axis.scale == "linear":
            low, high = min(values), max(values)
            pad = margin * ((high - low) or 1.0)
            area = any(s.mark == "area" for s in self.figure.series)
            set_limits(low if area else low - pad, high if area else high + pad)
            return
        set_scale("log", base=2 if axis.scale == "log2" else 10)
        logs = [math.log(v) for v in values if v > 0] or [0.0, 1.0]
        pad = margin * ((max(logs) - min(logs)) or 1.0)
        set_limits(math.exp(min(logs) - pad), math.exp(max(logs) + pad))

    def _ticks(self, ticks: Any, axis: Axis, scale: Scale, limits: tuple[float, float]) -> None:
        """As many round places as have room for their numbers."""
        places, labels = self._labels(axis, scale, limits, 7 if axis.scale == "linear" else 9)
        if ticks.axis_name == "x":
            for most in range(len(places), 1, -1):
                if sum(text_width(label, SMALL) + 10 for label in labels) <= self.across:
                    break
                places, labels = self._labels(axis, scale, limits, most - 1)
            labels = [
                label if self._inside(axis, limits, place, text_width(label, SMALL)) else ""
                for place, label in zip(places, labels, strict=True)
            ]
        ticks.set_major_locator(mpl.ticker.FixedLocator(places))
        ticks.set_major_formatter(mpl.ticker.FixedFormatter(labels))
        ticks.set_minor_locator(mpl.ticker.NullLocator())

    def _inside(self, axis: Axis, limits: tuple[float, float], place: float, wide: float) -> bool:
        """Whether a number below the axis ends within the drawing."""
        low, at, high = (
            each if axis.scale == "linear" else math.log(each)
            for each in (min(limits), place, max(limits))
        )
        return self.across * (high - at) / (high - low) + self.right >= wide / 2

    def _labels(
        self, axis: Axis, scale: Scale, limits: tuple[float, float], most: int
    ) -> tuple[list[float], list[str]]:
        low, high = min(limits), max(limits)
        if axis.scale == "linear":
            places = round_places(low, high, scale.worth, most)
            return places, [scale.number(v) for v in places]
        binary = axis.scale == "log2"
        base = 2 if binary else 10
        places = _powers(low, high, base, most)
        if not axis.unit and places and (places[0] < 1e-3 or places[-1] > 1e6):
            powers = (str(round(math.log(v, base))).translate(_RAISED) for v in places)
            return places, [f"{base}{power}" for power in powers]
        return places, [scale_for([v], axis.unit, binary).show(v) for v in places]


class _Stack:
    """Heights that stand on one another, place by place."""

    def __init__(self) -> None:
        self.totals: dict[float, float] = {}

    def add(self, places: list[float], heights: list[float]) -> list[float]:
        """Where each of ``heights`` begins; the next ones begin on top of them."""
        starts = [self.totals.get(place, 0.0) for place in places]
        for place, start, height in zip(places, starts, heights, strict=True):
            self.totals[place] = start + height
        return starts


def _powers(low: float, high: float, base: int, most: int) -> list[float]:
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    step = max(1, -(-(last - first + 1) // most))
    return [float(base) ** e for e in range(first, last + 1, step)]


# --- from matplotlib's SVG to ours ---------------------------------------------------------------


def _finish(svg: str, figure: Figure, lang: str, prefix: str, standalone: bool) -> str:
    """Keep what is drawn; drop what a page has no use for; put names in place of colours."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<defs>\s*<(style|clipPath).*?</\1>\s*</defs>", "", body, flags=re.S)
    tags = _TAG.findall(body)
    used = {name for tag in tags for name in re.findall(r'(?:href="#|url\(#)([^")]+)', tag)}
    body = _TAG.sub(lambda tag: _tidied(tag[0], used, prefix), body)
    body = re.sub(r"<g>|</g>|<g/>", "", body) if "<g " not in body else body
    body = re.sub(r"\s*\n\s*", "\n", re.sub(r" *\n *([LMCz\"])", r" \1", body)).strip() + "\n</svg>"
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert size is not None  # matplotlib always writes it
    width, height = (round(float(number)) for number in size.groups())
    drawn = head(figure.title[lang], lang, width, height) + body + "\n"
    return as_file(drawn) if standalone else drawn


def _tidied(tag: str, used: Collection[str], prefix: str) -> str:
    """One tag as ours; the words between tags are the figure's, and are not touched."""
    tag = re.sub(r' clip-path="[^"]*"| transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r" font-family: [^;\"]*;", "", tag)
    tag = re.sub(r"-?\d+\.\d{2,}", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), tag)
    tag = re.sub(r' d="([^"]*)"', lambda m: f' d="{_shorten(m[1])}"', tag)
    tag = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", tag)
    for name, ink in _INK.items():
        tag = tag.replace(ink, f"var(--pd-fig-{name}, {COLOURS[name][0]})")
    return tag


def _shorten(path: str) -> str:
    """A path with ``H`` and ``V`` for its level and upright lines, without lines of no length."""
    words, short = path.split(), list[str]()
    x = y = ""
    i = 0
    while i < len(words):
        command, count = words[i], {"M": 2, "L": 2, "C": 6, "Q": 4}.get(words[i], 0)
        values = words[i + 1 : i + 1 + count]
        if command == "L" and values[1] == y:
            short += [] if values[0] == x else ["H", values[0]]
        elif command == "L" and values[0] == x:
            short += ["V", values[1]]
        else:
            short += [command, *values]
        if count:
            x, y = values[-2:]
        i += 1 + count
    return " ".join(short)
