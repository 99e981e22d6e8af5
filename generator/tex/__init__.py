"""Formulas: their commands, their MathML and their font."""
