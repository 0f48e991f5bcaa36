"""Twins of a user's votes: data simulated from programs that were fitted to them, on which every method is scored."""
