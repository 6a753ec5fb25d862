"""Deals cells to workers through joblib: processes of this machine, or those of a Ray or Dask cluster."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from dryfit.errors import DryfitError, UsageError
from dryfit.sweeping.cell import Cell
from dryfit.sweeping.host import Job
from dryfit.sweeping.worker import Finished, close_all, run_cell

LOKY, RAY, DASK = "loky", "ray", "dask"
BACKENDS = (LOKY, RAY, DASK)


def finished_cells(
    cells: Sequence[Cell], job: Job, *, backend: str, address: str | None, jobs: int | None
) -> Iterator[tuple[int, Finished]]:
    """Rehearse cells, `jobs` at a time, and give each one's number as it finishes.

    Raises:
        UsageError: the backend is not installed, its cluster cannot be reached, or a worker was lost.
    """
    joblib = _imported("joblib", "sweep")
    with _backend(backend, address, jobs) as options, joblib.parallel_config(**options):
        deal = joblib.Parallel(batch_size=1, return_as="generator_unordered")
        try:
            yield from deal(joblib.delayed(_numbered)(number, cell, job) for number, cell in enumerate(cells))
        except DryfitError:
            raise
        except Exception as error:
            raise UsageError(
                f"A worker of {backend} was lost, or cannot run dryfit, which has to be installed there: "
                f"{type(error).__name__}: {_first_line(error)}. The finished cells are kept; start the same command "
                "again to go on."
            ) from error


def check_backend(backend: str, address: str | None) -> None:
    """See that a backend is installed, and can have an address.

    Raises:
        UsageError: it is not, or cannot.
    """
    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend} is none of {', '.join(BACKENDS)}.")
    _imported("joblib", "sweep")
    if backend == LOKY:
        if address is not None:
            raise UsageError(
                f"--address {address} is that of a cluster, and loky's workers are processes of this machine; say "
                "which cluster it is: --backend ray or --backend dask"
            )
        return
    _imported("ray" if backend == RAY else "distributed", backend)


def _numbered(number: int, cell: Cell, job: Job) -> tuple[int, Finished]:
    return number, run_cell(cell, job)


@contextlib.contextmanager
def _backend(backend: str, address: str | None, jobs: int | None) -> Iterator[dict[str, Any]]:
    """What joblib is to be told; at the end the workers' processes are closed, and a cluster of others is left."""
    kinds = {LOKY: _loky, RAY: _ray, DASK: _dask}
    with kinds[backend](address, jobs) as options:
        yield options


@contextlib.contextmanager
def _loky(address: str | None, jobs: int | None) -> Iterator[dict[str, Any]]:
    try:
        yield {"backend": LOKY, "n_jobs": jobs or os.cpu_count() or 1}
    finally:
        close_all()  # with one job, joblib's worker is this process
        importlib.import_module("joblib.externals.loky").get_reusable_executor().shutdown(wait=True)


@contextlib.contextmanager
def _ray(address: str | None, jobs: int | None) -> Iterator[dict[str, Any]]:
    """A cluster that this process has joined already, that of the address or RAY_ADDRESS, or else one started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _imported("ray", RAY)
    joined = not ray.is_initialized()
    if joined:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"No Ray cluster can be reached{f' at {address}' if address else ''}: {_first_line(error)}. `ray "
                "status` says whether one is running; one that asks for a token takes RAY_AUTH_TOKEN."
            ) from error
    try:
        joblib, of_ray = importlib.import_module("joblib"), importlib.import_module("ray.util.joblib.ray_backend")

        class RowsAsTheyFinish(of_ray.RayBackend):  # type: ignore[name-defined, misc]
            supports_return_generator = True  # joblib denies it to pools of processes, whose results Ray hands on alike

        joblib.register_parallel_backend("dryfit-ray", RowsAsTheyFinish)
        yield {"backend": "dryfit-ray", "n_jobs": jobs or -1}
    finally:
        if joined:
            ray.shutdown()


@contextlib.contextmanager
def _dask(address: str | None, jobs: int | None) -> Iterator[dict[str, Any]]:
    """A client that this process has already, one of the address or DASK_SCHEDULER_ADDRESS, or else a local cluster."""
    distributed = _imported("distributed", DASK)
    with contextlib.ExitStack() as stack:
        client = None
        if address is None:
            with contextlib.suppress(ValueError):
                client = distributed.default_client()
        if client is None:
            address = address or os.environ.get("DASK_SCHEDULER_ADDRESS")
            try:
                if address is None:
                    address = stack.enter_context(
                        distributed.LocalCluster(
                            n_workers=jobs or os.cpu_count(), threads_per_worker=1, dashboard_address=None
                        )
                    )
                client = stack.enter_context(distributed.Client(address))
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"No Dask scheduler can be reached at {address}: {_first_line(error)}. It prints its address when "
                    "it starts, as in tcp://10.0.0.1:8786."
                ) from error
        try:
            yield {"backend": DASK, "n_jobs": jobs or -1, "client": client}
        finally:
            with contextlib.suppress(OSError):  # a cluster that is gone has closed them
                client.run(close_all)


def _imported(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"dryfit sweep needs {name}, which is not installed: pip install 'dryfit[{extra}]'") from None


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else "no message"
