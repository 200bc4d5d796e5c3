"""The command line: `ligament cp` for formats that need Python. Each of the two commands runs the
other for its formats."""

from __future__ import annotations

import argparse
import json
import os
import sys

from ..errors import Error
from ..plural import count
from ..progress import bytes_text
from . import Converted, convert, kind_of, program


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ligament.convert",
        description="Copies models between stores (URI#name) and files of other formats, as "
        "`ligament cp` does: .pt, .pth, .bin, .ckpt (weights only), .keras, .h5, .weights.h5, "
        "torch.distributed.checkpoint folders, .safetensors, .npz, Hugging Face folders.",
    )
    add = parser.add_argument
    add("source", nargs="+", metavar="SOURCE")
    add("target", metavar="TARGET")
    add("-f", "--replace", action="store_true", help="replace an existing target")
    add("-l", "--like", metavar="FILE", help=".keras file with the architecture")
    add("-t", "--tag", action="append", type=_pair, default=[], metavar="NAME=VALUE",
        help="add a tag to the model")  # fmt: skip
    add("-p", "--part", metavar="NAME", help="only tensors below NAME.; removes that prefix")
    add("--strip", default="", metavar="PREFIX", help="remove a prefix from tensor names")
    add("-n", "--rename", action="append", type=_pair, default=[], metavar="OLD=NEW",
        help="rename a tensor, or a prefix before '.'")  # fmt: skip
    add("--limit", type=int, metavar="BYTES",
        help="memory limit for all tensors of a file (default: 100 times its size, at most half "
        "of the free memory)")  # fmt: skip
    add("--dcp", action="store_true", help="write a torch.distributed.checkpoint folder")
    add("--json", action="store_true", help="print JSON")
    return parser


def _is_for_program(words: list[str], into_folder: bool) -> bool:
    """Whether neither source nor target needs Python. A target without a suffix is a
    torch.distributed.checkpoint folder."""
    if any(map(kind_of, words)) or len(words) < 2 or into_folder:
        return False
    between = all("#" in word for word in words)
    ends = (".safetensors", ".npz", ".safetensors.index.json")
    files = any(word.endswith(ends) for word in words)
    names = ("model.safetensors", "model.safetensors.index.json")
    folders = any(os.path.isfile(os.path.join(s, name)) for s in words[:-1] for name in names)
    return between or files or folders


def _tell(done: list[Converted], as_json: bool) -> None:
    rows = []
    for one in done:
        to, _, name = one.target.partition("#")
        rows.append(
            {
                "from": one.source,
                "to": to,
                "name": name or None,
                "tensors": one.tensors,
                "bytes": one.bytes,
            }
        )
        if not as_json:
            size = bytes_text(one.bytes)
            print(f"{one.source} -> {one.target}  {count(one.tensors, 'tensor')}, {size}")
    if as_json:
        print(json.dumps(rows, indent=2))


def main(words: list[str] | None = None) -> int:
    """Returns 0, or 1 with one message on stderr."""
    words = sys.argv[1:] if words is None else words
    known, _ = _parser().parse_known_args(words)
    try:
        if _is_for_program([*known.source, known.target], known.dcp):
            return program.copy(words)
        given = _parser().parse_args(words)
        done = [
            convert(
                source,
                given.target,
                replace=given.replace,
                like=given.like,
                tags=dict(given.tag) or None,
                limit=given.limit,
                part=given.part,
                strip=given.strip,
                rename=dict(given.rename) or None,
            )
            for source in given.source
        ]
    except (Error, OSError) as error:
        print(f"ligament: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    _tell(done, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
