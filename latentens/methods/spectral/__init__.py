"""What the spectral methods share: moments of votes and what follows from them."""
