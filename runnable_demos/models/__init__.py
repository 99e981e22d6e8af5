"""The small networks that several demos train, and the ways to wrap them."""
