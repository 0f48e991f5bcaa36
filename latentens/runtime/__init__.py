"""What everything else runs on: precision, devices, limits, progress and randomness."""
