"""Demos run as processes of their own, and what a new run says of a record."""
