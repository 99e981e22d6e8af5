"""A card as HTML, as plain text and as Markdown for Obsidian; the templates of all pages."""
