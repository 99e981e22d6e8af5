"""The drawings of which card leads to which."""
