"""The grammar of links: what stands in the brackets, and where it leads.

===================================  ==========================================================================
``[33%](claim:demo/metric)``         a number or truth that the demo's record on the CPU proves;
                                     ``@h200`` behind the metric asks for the record of that GPU
``[50%](wrong:demo/metric)``         the same, said elsewhere, and refuted by the record
``[64](param:demo/name)``            a setting of the run that the demo's record on the CPU keeps
``[80 GB](fact:h100-sxm/memory)``    a public fact: a key of an entry of ``facts.yml``, which names its source
``[16 GB](calc: "8 × 2 GB")``        what follows from others: the title is the expression;
                                     as a definition, ``[label]: calc: "…"``, other expressions name it
``[30%](source:key "Table 5")``      a result of the work that the front matter declares as ``key``;
                                     the title says where in it, else the work's ``where`` counts
``[80 GB](given:)``                  a quantity assumed for the argument
``[not yet …](gpu:demo/metric)``     a number that only a GPU's record will hold, in words until it does
``[text](card:id)``                  another card, or an item of it: ``card:id#item``
``[text](https://…)``                another site; ``http:`` and ``mailto:`` as well
===================================  ==========================================================================

The text is never empty, and nothing else is a link. ``![caption](figure:demo/name)``, alone in its paragraph,
is the figure of that name in a demo's record, with ``@h200`` behind it as in a claim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from markdown_it.token import Token

from generator.cards.front_matter import SourceEntry
from generator.cards.model import (
    Awaited,
    Calc,
    CardLink,
    Citation,
    Claim,
    Fact,
    FigureLink,
    Given,
    Link,
    Param,
    WebLink,
    place_of,
)
from generator.names import suggest
from generator.problems import Place, Problem
from generator.web import why_unsound
from runnable_demos.lab.metrics import DEVICE

_WEB = {"http", "https", "mailto"}
_SNAKE = "[a-z][a-z0-9_]*"
_ID = "[a-z0-9]+(?:-[a-z0-9]+)*"
TARGETS: Mapping[str, str] = {
    "claim": rf"(?P<subject>{_SNAKE})/(?P<key>{_SNAKE})(?:@(?P<device>{DEVICE}))?",
    "param": rf"(?P<subject>{_SNAKE})/(?P<key>{_SNAKE})",
    "fact": rf"(?P<subject>{_ID})/(?P<key>{_SNAKE})",
}
"""What stands behind the schemes of proofs, in links and in expressions: a demo or an entry, and what of it."""
LABEL = _ID
"""What a definition is called that expressions name."""
_TABLES: Mapping[str, tuple[type[Param] | type[Fact] | type[Awaited], str, str, str]] = {
    "param": (Param, TARGETS["param"], "parameter", "`param:demo_name/parameter_name`"),
    "fact": (Fact, TARGETS["fact"], "fact", "`fact:entry-id/key`, as `facts.yml` names them"),
    "gpu": (Awaited, TARGETS["param"], "metric", "`gpu:demo_name/metric_name`"),
}
_FORMS = (
    "Link to `card:ID`, `claim:DEMO/METRIC`, `wrong:DEMO/METRIC`, `param:DEMO/NAME`, `fact:ID/KEY`, "
    '`calc: "EXPRESSION"`, `source:KEY`, `given:`, `gpu:DEMO/METRIC` '
    "or an address that begins with `https://`."
)


def read(token: Token, sources: Mapping[str, SourceEntry] | None) -> tuple[Link, list[Problem]]:
    """The link that a ``link_open`` token opens, and what is wrong with it.

    ``sources`` are the works that the front matter declares; ``None`` where it cannot be read.
    What leads nowhere is a ``WebLink`` without an address.
    """
    place, text = place_of(token), token.meta["label"]
    href, title = str(token.attrs["href"]), str(token.attrs.get("title", ""))
    scheme, colon, target = href.partition(":")
    target = unquote(target)
    link: Link = WebLink(place, text, "")
    problem: Problem | None = None
    match scheme:
        case "claim" | "wrong":
            link, problem = _claim(place, text, scheme, target)
        case "param" | "fact" | "gpu":
            link, problem = _named(place, text, scheme, target)
        case "calc":
            link, problem = _calc(place, text, target, title)
        case "source":
            source = (sources or {}).get(target)
            link = Citation(place, text, target, title or (source.where if source else ""))
            if sources is not None and source is None:
                message = f"the front matter declares no source `{target}`"
                problem = Problem(place, "unknown-source", message, suggest(target, sources))
        case "given":
            link = Given(place, text)
            if target:
                problem = _bad(place, "nothing follows `given:`", "Write `(given:)`.")
        case "card":
            card, _, anchor = target.partition("#")
            link = CardLink(place, text, card, anchor)
        case _ if scheme.lower() in _WEB and colon:
            link = WebLink(place, text, scheme.lower() + href[len(scheme) :])
            if why := why_unsound(href):
                problem = _bad(place, f"`{href}` {why}", _FORMS)
        case _:
            problem = _bad(place, f"`{href}` is no target", _FORMS)
    problems = [problem] if problem else []
    if not text.strip():
        hint = "Write it in the brackets."
        problems.append(Problem(place, "empty-link", "this link has no text", hint))
    return link, problems


def figure(token: Token, caption: str) -> tuple[FigureLink | None, list[Problem]]:
    """The figure that a ``figure_open`` token places over its ``caption``, and what is wrong with it."""
    place, source = place_of(token), unquote(str(token.meta["src"]))
    problems = []
    if "title" in token.meta:
        hint = "Say it in the brackets: the caption stands below the figure."
        problems.append(Problem(place, "bad-figure", "a figure has no title in quotes", hint))
    if not caption.strip():
        hint = "Say in the brackets what is to be seen; where figures are not drawn, that is all there is."
        problems.append(Problem(place, "empty-caption", "this figure has no caption", hint))
    if found := re.fullmatch(TARGETS["claim"], source.removeprefix("figure:")):
        demo, name, device = found.groups(default="cpu")
        return FigureLink(place, demo, name, device), problems
    form = "`figure:demo_name/figure_name`, with `@h200` behind it for that GPU's record"
    message = f"`{source}` names no figure"
    return None, [*problems, Problem(place, "bad-figure", message, f"Write {form}.")]


def _claim(place: Place, text: str, scheme: str, target: str) -> tuple[Link, Problem | None]:
    if found := re.fullmatch(TARGETS["claim"], target):
        demo, metric, device = found.groups(default="cpu")
        return Claim(place, text, demo, metric, device, scheme == "wrong"), None
    form = f"`{scheme}:demo_name/metric_name`, with `@h200` behind it for that GPU's record"
    problem = _bad(place, f"`{scheme}:{target}` names no metric", f"Write {form}.")
    return WebLink(place, text, ""), problem


def _named(place: Place, text: str, scheme: str, target: str) -> tuple[Link, Problem | None]:
    make, pattern, what, form = _TABLES[scheme]
    if found := re.fullmatch(pattern, target):
        return make(place, text, found[1], found[2]), None
    problem = _bad(place, f"`{scheme}:{target}` names no {what}", f"Write {form}.")
    return WebLink(place, text, ""), problem


def _calc(place: Place, text: str, target: str, title: str) -> tuple[Link, Problem | None]:
    problem = None
    if target or not title.strip():
        form = 'Write the expression as a title: `(calc: "{devices} × 16 GB")`.'
        problem = _bad(place, "this calculates nothing", form)
    return Calc(place, text, " ".join(title.split())), problem


def _bad(place: Place, message: str, hint: str) -> Problem:
    return Problem(place, "bad-link", message, hint)
