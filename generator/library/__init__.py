"""Every card of a base, and how they lead to one another."""
