"""Compile bilingual study cards, whose numbers are proven by runs, into sites and exports."""
