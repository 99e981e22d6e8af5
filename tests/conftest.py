"""What every test shares."""

from hypothesis import settings

# A busy machine is slow, not wrong: speed is a benchmark's business.
settings.register_profile("proofdeck", deadline=None)
settings.load_profile("proofdeck")
