"""Unsupervised ensemble learning with every method next to the exact Bayes posterior."""

import lazy_loader

__version__ = "0.2.0.dev0"

# Names are imported on first use, so that the command's help does not wait for JAX; `__init__.pyi` lists them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
