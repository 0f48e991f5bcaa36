"""Infrastructure: precision, devices, limits, progress and randomness."""
