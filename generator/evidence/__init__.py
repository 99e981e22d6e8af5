"""The recorded runs, and what they say of the numbers on a card."""
