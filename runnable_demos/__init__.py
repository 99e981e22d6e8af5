"""Demos that prove the numbers on the cards, one question a file, and the evidence that they recorded."""
