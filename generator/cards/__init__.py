"""A card and a syllabus, read from their files: what they say, and where it stands."""
