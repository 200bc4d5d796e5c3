"""The command."""

from __future__ import annotations

import argparse
import json
import sys

from ..errors import Error
from . import convert


def _tag(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def main(words: list[str] | None = None) -> int:
    """0, or 1 with one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m ligament.convert",
        description="Copies a model between a store (URI#name) and a file of another format: "
        ".pt, .pth, .bin, .ckpt (weights only), .keras, .h5, .weights.h5, or a folder of "
        "torch.distributed.checkpoint.",
    )
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("-f", "--replace", action="store_true", help="replace an existing target")
    parser.add_argument("-l", "--like", metavar="FILE", help=".keras file with the architecture")
    parser.add_argument(
        "-t", "--tag", action="append", type=_tag, default=[], metavar="NAME=VALUE",
        help="gives the model a tag",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=int, metavar="BYTES",
        help="what the tensors of a file may claim in all (100 times its size, at most half of the "
        "free memory)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="prints an object")
    given = parser.parse_args(words)
    try:
        done = convert(
            given.source,
            given.target,
            replace=given.replace,
            like=given.like,
            tags=dict(given.tag) or None,
            limit=given.limit,
        )
    except (Error, OSError) as error:
        print(f"convert: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"convert: {error}; install the library that reads such files", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(vars(done)))
    else:
        print(f"{done.source} -> {done.target}  {done.tensors} tensors, {done.bytes} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
