"""The colours of figures on light and on dark, as CSS variables that a page can set. Standard library only."""

from __future__ import annotations

# name of the CSS variable: (colour on light, colour on dark); all are at least 4.5:1 on their ground
COLOURS = {
    "fg": ("#1f2937", "#e5e7eb"),
    "muted": ("#4b5563", "#b6bdc8"),
    "grid": ("#d9dde3", "#3d434d"),
    "bg": ("#ffffff", "#1e2129"),
    "1": ("#1d5fd1", "#7cb0ff"),
    "2": ("#b45309", "#fbb35e"),
    "3": ("#047857", "#4fd1a5"),
    "4": ("#be185d", "#f58ac0"),
    "5": ("#6d28d9", "#b79cff"),
    "6": ("#475569", "#a8b3c2"),
}


def as_file(svg: str) -> str:
    """An inline drawing as a file of its own, with its ground and both colour schemes."""
    head, body = svg.split("\n", 1)
    return f"{head}\n{_scheme()}{body}"


def _scheme() -> str:
    """Both colour schemes, for a file that no page styles."""
    light, dark = (
        " ".join(f"--pd-fig-{name}: {pair[which]};" for name, pair in COLOURS.items())
        for which in (0, 1)
    )
    return (
        f"<style>svg {{ {light} background: var(--pd-fig-bg); }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>\n"
    )
