"""Print ``docs/checks.en.md``: ``python -m generator.checks > docs/checks.en.md``."""

from generator.checks import documented

print(documented(), end="")
