"""Commands."""


def main() -> None:
    """Run the command line."""
