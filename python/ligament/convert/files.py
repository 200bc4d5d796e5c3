"""`python -m ligament.convert.files`: the part of `ligament cp` that needs Python. The program has
checked the command line and resolved the names of models."""

from __future__ import annotations

import argparse
import json
import sys
import warnings

from ..errors import Error, ExistsError
from ..plural import count
from ..progress import bytes_text
from . import Converted, convert, model_name


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("source", nargs="+")
    add("target")
    for option in ("--replace", "--dcp", "--json"):
        add(option, action="store_true")
    for option in ("--tag", "--metric", "--rename"):
        add(option, action="append", type=_pair, default=[])
    for option in ("--like", "--part"):
        add(option)
    add("--strip", default="")
    add("--limit", type=int)
    return parser


def _copy(given: argparse.Namespace, source: str) -> Converted:
    return convert(
        source,
        given.target,
        replace=given.replace,
        like=given.like,
        tags=dict(given.tag) or None,
        metrics={name: float(value) for name, value in given.metric} or None,
        limit=given.limit,
        part=given.part,
        strip=given.strip,
        rename=dict(given.rename) or None,
    )


def _row(one: Converted) -> dict[str, str | int | None]:
    to, _, name = one.target.partition("#")
    return {
        "from": one.source,
        "to": to,
        "name": name or None,
        "tensors": one.tensors,
        "bytes": one.bytes,
    }


def _check_names(given: argparse.Namespace) -> None:
    """Two sources must not become one model."""
    names = [model_name(source, given.target) for source in given.source]
    for name in names:
        if names.count(name) > 1:
            raise ExistsError(
                f"two sources would be copied to the model '{name}' (copy one of them alone, to "
                "STORE#NAME)"
            )


def _copy_all(given: argparse.Namespace) -> None:
    _check_names(given)
    rows = []
    for source in given.source:
        one = _copy(given, source)
        rows.append(_row(one))
        if not given.json:
            size = bytes_text(one.bytes)
            print(f"{one.source} -> {one.target}  {count(one.tensors, 'tensor')}, {size}")
    if given.json:
        print(json.dumps(rows, indent=2))


def main(words: list[str]) -> int:
    """Returns 0, or 1 with one message on stderr."""
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    try:
        _copy_all(_parser().parse_args(words))
    except (Error, OSError) as error:
        print(f"ligament: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
