"""Inference on tables: optimisation, expectation–maximisation, sampling, and the order of the labels."""
