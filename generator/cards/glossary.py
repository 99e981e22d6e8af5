"""The glossary of a base: its terms, what else they are called, what is never said, and names before numerals.

Terms are found in text by the longest form first, and one never within another. 汉字 need no boundary;
Latin letters and digits do, and may take a plural's ending. Case counts in a form that has a capital behind its
first letter: OOM, ZeRO.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from generator.lang import LANGS, Lang, Text
from generator.problems import Place

_LETTER = "[A-Za-z0-9_]"


@dataclass(frozen=True, slots=True)
class Term:
    """A term in each language, and its meaning in one sentence.

    ``variants`` are other words for it by language, slang among them; ``never`` are those that no card
    says; ``card`` is the id of the card that explains it, if one does.
    """

    id: str
    name: Text
    means: Text
    variants: Mapping[str, tuple[str, ...]]
    never: Mapping[str, tuple[str, ...]]
    card: str | None

    def said(self, lang: Lang) -> tuple[str, ...]:
        """What the term is called in a language: its name, then its variants."""
        return (self.name[lang], *self.variants.get(lang, ()))

    @property
    def others(self) -> tuple[tuple[Lang, str], ...]:
        """What else it is called, each once, with the language in which it stands first."""
        first: dict[str, Lang] = {}
        for lang in LANGS:
            for form in self.variants.get(lang, ()):
                first.setdefault(form, lang)
        names = self.name.values()
        return tuple((lang, form) for form, lang in first.items() if form not in names)

    @property
    def forms(self) -> tuple[str, ...]:
        """All that people write for it, in all languages, what is never said included, each once."""
        each = (form for lang in LANGS for form in (*self.said(lang), *self.never.get(lang, ())))
        return tuple(dict.fromkeys(each))


class Mention(NamedTuple):
    """Where a term stands in a text, and whether as cards say it."""

    start: int
    end: int
    term: Term
    said: bool


@dataclass(frozen=True)
class Glossary:
    """The terms by id, in the order of the file; ``naming`` are words behind which a numeral is a name.

    ``places`` says where each key of an entry stands in the file, by paths such as ``token.card``.
    """

    terms: Mapping[str, Term] = field(default_factory=dict)
    naming: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict, repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that decides which terms are found where: not of what they mean."""
        forms = [(term.id, term.name, term.variants, term.never) for term in self.terms.values()]
        return hashlib.sha256(repr(forms).encode("utf-8", "backslashreplace")).hexdigest()

    def mentions(self, text: str, lang: Lang) -> Iterator[Mention]:
        """Each place of a term in a text in one language, from left to right."""
        finders, texts = self._found_by[lang], (folded(text), text)
        ahead = [
            pattern and pattern.search(each)
            for (pattern, _), each in zip(finders, texts, strict=True)
        ]
        while found := [
            (each.start(), -_length(each), at) for at, each in enumerate(ahead) if each
        ]:
            *_, nearest = min(found)
            chosen = ahead[nearest]
            assert chosen is not None  # it was found
            written = " ".join(chosen[chosen.lastgroup or ""].split())
            form = finders[nearest][1][written]
            yield Mention(chosen.start(), chosen.end(), form.term, form.said)
            for at, (pattern, _) in enumerate(finders):
                before = ahead[at]
                if pattern and before and before.start() < chosen.end():
                    ahead[at] = pattern.search(texts[at], chosen.end())

    @cached_property
    def _found_by(self) -> Mapping[Lang, tuple[_Finder, _Finder]]:
        """For each language what finds the forms in which case does not count, and those in which it does."""
        return {lang: self._finders(lang) for lang in LANGS}

    def _finders(self, lang: Lang) -> tuple[_Finder, _Finder]:
        small: dict[str, _Form] = {}
        kept: dict[str, _Form] = {}
        for term in self.terms.values():
            said = [(form, True) for form in term.said(lang)]
            for form, is_said in (*said, *((each, False) for each in term.never.get(lang, ()))):
                forms, key = (kept, form) if _keeps_case(form) else (small, folded(form))
                forms.setdefault(key, _Form(term, is_said))
        return (_pattern(small), small), (_pattern(kept), kept)


class _Form(NamedTuple):
    """The term that a form stands for, and whether cards say it."""

    term: Term
    said: bool


_Finder = tuple[re.Pattern[str] | None, Mapping[str, _Form]]


def _length(found: re.Match[str]) -> int:
    """Characters of the form that was found, without a plural's ending."""
    return len(found[found.lastgroup or ""])


def _pattern(forms: Mapping[str, _Form]) -> re.Pattern[str] | None:
    longest = sorted(forms, key=len, reverse=True)
    latin = [form for form in longest if re.match(_LETTER, form)]
    other = [form for form in longest if not re.match(_LETTER, form)]
    parts = [rf"(?<!{_LETTER})(?P<latin>{_any_of(latin)})"] if latin else []
    parts += [rf"(?P<other>{_any_of(other)})"] if other else []
    return re.compile(f"(?:{'|'.join(parts)}){_PLURAL}") if parts else None


def _any_of(forms: list[str]) -> str:
    return "|".join(map(_ending, forms))


def _ending(form: str) -> str:
    """A form; where it ends in Latin letters it ends there in the text as well, but for a plural."""
    written = r"\s".join(map(re.escape, form.split()))
    if not re.match(_LETTER, form[-1]):
        return written
    return rf"{written}(?=(?:[eE]?[sS])?(?!{_LETTER}))"


_PLURAL = rf"(?:(?<={_LETTER})[eE]?[sS](?!{_LETTER}))?"


def folded(text: str) -> str:
    """``text`` in small letters, character by character, so that places stay."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := each.lower()) == 1 else each for each in text)


def _keeps_case(form: str) -> bool:
    return any(each.isupper() for each in form[1:])
