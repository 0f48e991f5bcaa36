"""Reports of comparisons: one HTML page, with its figures and tables as files."""

from typing import Any

import lazy_loader

from latentens.errors import require

_getattr, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use; the terminal's tables, in this folder too, need no library of figures."""
    if name in __all__:
        require("A report", "arviz_plots", "jinja2", "matplotlib", "PIL")
    return _getattr(name)
