"""What writes into a base: a new card, and numbers and words that are renewed."""
