"""Print ``docs/checks.md``: ``python -m generator.checks > docs/checks.md``."""

from generator.checks import documented

print(documented(), end="")
