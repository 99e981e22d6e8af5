"""What compares speeds: with earlier ones, with larger bases, and with other builders."""
