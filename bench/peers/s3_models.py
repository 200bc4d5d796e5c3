#!/usr/bin/env python3
"""Models of a bucket: against torch.distributed.checkpoint with fsspec, and through the cache
against a store in a folder. The contenders alternate, over the same tensors.

s3_models.py PLACE ENDPOINT [--mib 256] [--cached-mib 1024] [--rounds 3] [--cache-only]

PLACE is bucket/prefix; keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Prints one line of
JSON: seconds of each round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[1] / "out/packages"
TENSOR_BYTES = 16 << 20
CACHED_LOADS = 7
sys.path.append(str(PACKAGES))

import ligament  # noqa: E402
import torch  # noqa: E402

Tensors = dict[str, torch.Tensor]


def seconds(act: Callable[[], object]) -> float:
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


def random_model(mib: int) -> Tensors:
    count = max(1, (mib << 20) // TENSOR_BYTES)
    return {f"layer{i}": torch.randn(TENSOR_BYTES // 4) for i in range(count)}


def fresh(target: Tensors) -> Tensors:
    for tensor in target.values():
        tensor.zero_()
    return target


def check(model: Tensors, target: Tensors) -> None:
    if not all(torch.equal(model[name], target[name]) for name in model):
        sys.exit("s3_models: what was loaded is not what was saved")


def one_dcp(place: str, endpoint: str, model: Tensors, target: Tensors) -> tuple[float, float]:
    """save and load by DCP, as its documentation does with an object store."""
    import fsspec  # noqa: PLC0415
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415
    from torch.distributed.checkpoint import _fsspec_filesystem as dcp_fsspec  # noqa: PLC0415

    options = {"endpoint_url": endpoint}
    url = f"s3://{place}"
    # A bucket has nothing to sync.
    writer = dcp_fsspec.FsspecWriter(url, sync_files=False, **options)
    reader = dcp_fsspec.FsspecReader(url, **options)
    saved = seconds(lambda: dcp.save(model, storage_writer=writer, no_dist=True))
    fresh(target)
    loaded = seconds(lambda: dcp.load(target, storage_reader=reader, no_dist=True))
    check(model, target)
    fsspec.filesystem("s3", **options).rm(url, recursive=True)
    return saved, loaded


def one_store(store: ligament.Store, model: Tensors, target: Tensors) -> tuple[float, float]:
    saved = seconds(lambda: store.save("model", model))
    fresh(target)
    loaded = seconds(lambda: store.load("model", into=target))
    check(model, target)
    store.retire("model")
    return saved, loaded


def measure_dcp(given: argparse.Namespace) -> dict[str, list[float]]:
    model, target = random_model(given.mib), random_model(given.mib)
    found: dict[str, list[float]] = {name: [] for name in ("save", "load", "dcp_save", "dcp_load")}
    with ligament.Store(f"s3://{given.place}/store?endpoint={given.endpoint}&grace=0") as store:
        for round_ in range(given.rounds):
            pair = one_dcp(f"{given.place}/dcp{round_}", given.endpoint, model, target)
            found["dcp_save"].append(pair[0])
            found["dcp_load"].append(pair[1])
            pair = one_store(store, model, target)
            found["save"].append(pair[0])
            found["load"].append(pair[1])
    return found


def measure_cache(given: argparse.Namespace) -> dict[str, list[float]]:
    """Loads from the page cache, of the cache's files and of a store's."""
    model, target = random_model(given.cached_mib), random_model(given.cached_mib)
    found: dict[str, list[float]] = {"local_load": [], "cached_load": []}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        cache.mkdir(mode=0o700)
        place = f"s3://{given.place}/cached?endpoint={given.endpoint}&grace=0&cache={cache}"
        with ligament.Store(f"{folder}/local") as local, ligament.Store(place) as remote:
            for store in (local, remote):
                store.save("model", model)
                store.load("model", into=fresh(target))
                check(model, target)
            contenders = [("local_load", local), ("cached_load", remote)]
            for _ in range(CACHED_LOADS):
                contenders.reverse()
                for name, store in contenders:
                    found[name].append(seconds(lambda one=store: one.load("model", into=target)))
                    check(model, target)
            remote.retire("model")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("place")
    parser.add_argument("endpoint")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--cached-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache-only", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("AWS_REGION", "default")
    warnings.filterwarnings("ignore", category=UserWarning)
    found = measure_cache(given)
    if not given.cache_only and find_spec("s3fs") is not None:
        found |= measure_dcp(given)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
