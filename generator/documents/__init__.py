"""Documents that are no cards: Markdown of both languages, read section by section."""
