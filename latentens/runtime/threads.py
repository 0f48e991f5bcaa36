"""Threads: how many this process may use, and one for the linear algebra of small products."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


def available_cores() -> int:
    """The number of cores this process may use, by its affinity and by the quota of its control group."""
    import joblib  # imported late: the command's help should not wait for it

    return int(joblib.cpu_count())


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread, as a context or as the decorator `@one_blas_thread()`.

    The threads of BLAS wait for each other by spinning: on small products, on a busy machine or beside Python threads
    that takes many times longer than the product itself. OpenBLAS has one bound for the whole process; it obeys the
    first thread that sets it, so bound BLAS where threads are started and not inside them.
    """
    with threadpool_limits(1, user_api="blas"):
        yield
