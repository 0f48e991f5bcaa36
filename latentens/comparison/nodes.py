"""Names of nodes in a tree."""

import re
from collections.abc import Container, Iterable

UNSAFE = re.compile(r"[/\x00-\x1f]")


def node_names(names: Iterable[str], taken: Container[str] = ()) -> dict[str, str]:
    """A different node for each name: the name itself where it can be one.

    Args:
        names: Different names.
        taken: Nodes that are there already.
    """
    names = list(names)
    found = {name: name for name in names if _is_node(name) and name not in taken}
    for name in names:
        if name not in found:
            found[name] = _free(UNSAFE.sub("_", name).strip(".") or "_", {*found.values()}, taken)
    return {name: found[name] for name in names}


def node_paths(names: Iterable[str], taken: Container[str] = ()) -> dict[str, str]:
    """A different path for each name, none of them inside another; slashes lead to nodes within nodes.

    Args:
        names: Different names.
        taken: Nodes at the top that are there already.
    """
    names = sorted(names, key=lambda name: name.count("/"))
    found: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if all(map(_is_node, parts)) and parts[0] not in taken and not above & {*found.values()}:
            found[name] = name
    tops = {path.partition("/")[0] for path in found.values()}
    for name in names:
        if name not in found:
            found[name] = _free(UNSAFE.sub("_", name).strip(".") or "_", tops, taken)
            tops.add(found[name])
    return found


def _is_node(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not UNSAFE.search(name)


def _free(wanted: str, *taken: Container[str]) -> str:
    """The wanted name, or the first with a number that is free."""
    number, name = 1, wanted
    while any(name in names for names in taken):
        number += 1
        name = f"{wanted}_{number}"
    return name
