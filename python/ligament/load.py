"""Loading: which bytes are read into which memory, checked before anything is written."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any

from . import _core, tensors
from .errors import InvalidError, MismatchError, NotFoundError
from .plural import listed
from .progress import Bar
from .tensors import Fresh
from .tree import check_plain, decode, frameworks

_GROUP_BYTES = 48 << 20  # memory that waits to be taken over
_SHOWN_BYTES = 128 << 20
_NAMED = 5  # how many names a sentence lists
_ADVICE = ("(use missing='keep' to leave them unchanged)", "(use extra='ignore' to skip them)")

# The prefix of files that belong to a model but are not its tensors (config.json of a Hugging Face
# folder). `ligament cp` stores them after all tensors; loads leave them out.
FILES = "__files__/"

Slice = tuple[int, int, int]  # start, step, count


@dataclass(frozen=True)
class Result:
    """The tensors that a load skipped."""

    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


@dataclass
class _Read:
    """The read of one stored tensor, or a slice of it, into `item`; a `_Later` is allocated when
    its turn comes."""

    name: str
    code: int
    shape: tuple[int, ...]
    slices: tuple[Slice, ...] | None = None
    bytes: int = 0
    item: Any = None


@dataclass
class _Later:
    """Temporary memory that is passed to `take` once it is filled."""

    take: Callable[[Fresh], None]


class Loader:
    """One load of one version of a model: description, structure and tensors come from one ref, so
    they are consistent even if another process replaces the model meanwhile."""

    def __init__(self, source: _core.Ref) -> None:
        self.source = source
        self.model = source.model
        self.name = self.model.name
        self.stored: list[str] = self.model.names()
        self.names = self.stored
        if self.stored and self.stored[-1].startswith(FILES):  # they come last
            self.names = [name for name in self.stored if not name.startswith(FILES)]
        self.chosen: list[str] | None = None  # None: all
        self.slices: dict[str, Any] = {}
        self.layouts: dict[str, Any] = {}  # distributed tensors that new ones are laid out like
        self.verify = True
        self.show = False
        self.advice = _ADVICE  # for missing and for extra tensors
        self._rows: list[_core.StoredTensor] | None = None

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each name."""
        return {name: i for i, name in enumerate(self.stored)}

    @cached_property
    def files(self) -> dict[str, int]:
        """The files stored with the model, and the position of each."""
        return {n.removeprefix(FILES): i for n, i in self.index.items() if n.startswith(FILES)}

    def _all_rows(self) -> list[_core.StoredTensor]:
        if self._rows is None:
            self._rows = self.model.tensors()
        return self._rows

    def _row(self, name: str) -> _core.StoredTensor:
        return self._all_rows()[self.index[name]]

    def choose(self, wanted: Sequence[str] | Mapping[str, Any] | str | None) -> None:
        """Patterns, or names with slices."""
        if wanted is None:
            return
        if isinstance(wanted, Mapping):
            unknown = [name for name in wanted if name not in self.index]
            self.slices = {name: part for name, part in wanted.items() if part is not None}
            self.chosen = list(wanted)
        else:
            patterns = [wanted] if isinstance(wanted, str) else list(wanted)
            unknown = [pattern for pattern in patterns if not self._fits(pattern)]
            chosen = {name for pattern in patterns for name in self._fits(pattern)}
            self.chosen = [name for name in self.names if name in chosen]
        if unknown:
            raise NotFoundError(f"model '{self.name}' has no tensor {listed(unknown, _NAMED)}")

    def _fits(self, pattern: str) -> Iterable[str]:
        if pattern in self.index:
            return [pattern]
        match = re.compile(fnmatch.translate(pattern)).match
        return [name for name in self.names if match(name)]

    def _stored(self, name: str) -> _Read:
        _, code, shape, bytes_, *_ = self._row(name)
        return _Read(name, code, shape, bytes=bytes_)

    # --- into what is there ---------------------------------------------------------------------

    def fill(
        self, into: Any, keep: bool, ignore: bool, cast: bool, mapped: bool, prefix: str = ""
    ) -> Result:
        """Fills a model or tree in place; `prefix` precedes its names in the store."""
        target = tensors.target(into)
        if target.tree is not None:
            target.tree(self.whole("saved", False, None))
            return Result()
        values = target.values  # as the caller has them
        result, places = self._places(target, keep, ignore, prefix)
        self._fill_places(target, places, cast, mapped)
        if target.plain is not None and self.model.structure:
            filled = dict(zip(target.names, values, strict=True))
            target.plain(_below(decode(self.model.structure, filled), prefix))
        return result

    def check(self, into: Any, prefix: str = "", ignore: bool = False) -> None:
        """Raises the errors that `fill` would raise before it writes. Use a separate loader: one
        that checked cannot fill."""
        target = tensors.target(into)
        if target.tree is None:
            places = self._places(target, False, ignore, prefix)[1]
            takers = tensors.takers(target.names, target.values, places)
            self._plan(target, places, takers, False)
        if isinstance(into, (dict, list, tuple)) and self.model.structure:
            check_plain(into, _below(decode(self.model.structure, {}), prefix), prefix[:-1])

    def _places(
        self, target: tensors.Target, keep: bool, ignore: bool, prefix: str
    ) -> tuple[Result, list[int]]:
        if prefix:
            target.names = [prefix + name for name in target.names]
        self._localize(target)
        if self.chosen is None and target.names == self.names:
            return Result(), list(range(len(self.names)))
        return self._compare(target, keep, ignore, all_of_it=bool(prefix))

    def _localize(self, target: tensors.Target) -> None:
        """For distributed tensors, fills only the local part, in local memory."""
        shards = [
            (i, tensors.shard(value, target.names[i]))
            for i, value in enumerate(target.values)
            if tensors.is_distributed(value)
        ]
        if not shards:
            return
        values = list(target.values)  # the target's own list is for those who finish it
        wrong = []
        for i, shard in shards:
            name = target.names[i]
            if shard is None or name not in self.index:
                continue
            stored = tuple(self._row(name)[2])
            if stored != shard.whole:
                wrong.append(f"'{name}' has shape {shard.whole}, but the stored shape is {stored}")
            if name in self.slices:
                raise InvalidError(f"cannot load a slice of '{name}', which is distributed")
            self.slices[name] = shard.index
            values[i] = shard.local
        if wrong:
            raise MismatchError(f"model '{self.name}' does not fit: " + "; ".join(wrong[:_NAMED]))
        target.values = values

    def _compare(
        self, target: tensors.Target, keep: bool, ignore: bool, all_of_it: bool
    ) -> tuple[Result, list[int]]:
        """What either side lacks, and which tensors of the target are filled: those that were
        selected, unless all must be."""
        stored = self.names if self.chosen is None else self.chosen
        asked = set(stored)
        names, known = target.names, set(target.names)
        if self.chosen is not None and not all_of_it:
            names = [name for name in names if name in asked]
        missing = [name for name in names if name not in self.index]
        if missing:
            missing = self._not_tied(missing, target)
        extra = [name for name in stored if name not in known]
        if missing and not keep:
            raise MismatchError(
                f"model '{self.name}' lacks {listed(missing, _NAMED)} {self.advice[0]}"
            )
        if extra and not ignore:
            raise MismatchError(
                f"model '{self.name}' contains tensors that the target lacks: "
                f"{listed(extra, _NAMED)} {self.advice[1]}"
            )
        wanted = {name for name in names if name in self.index}
        places = [i for i, name in enumerate(target.names) if name in wanted]
        return Result(missing, extra), places

    def _not_tied(self, missing: list[str], target: tensors.Target) -> list[str]:
        """Without names whose tensor is filled under another name: some formats keep only one name
        of tied weights."""
        at = {name: i for i, name in enumerate(target.names)}
        filled = {id(target.values[i]) for name, i in at.items() if name in self.index}
        return [name for name in missing if id(target.values[at[name]]) not in filled]

    def _fill_places(
        self, target: tensors.Target, places: list[int], cast: bool, mapped: bool
    ) -> None:
        takers = tensors.takers(target.names, target.values, places)
        if mapped:
            _refuse_map([target.names[i] for i in places if i not in takers])
        lent = all(tensors.lendable(target.values[i]) for i in takers)
        simple = lent and not cast and not self.slices
        if simple and self._fill_at_once(target, places):
            target.done(places, takers)
            return
        reads = self._plan(target, places, takers, cast)
        self._map_some(reads, [takers.get(i) for i in places], mapped)
        self._run([read for read in reads if read.item is not None])
        target.done(places, takers)

    def _fill_at_once(self, target: tensors.Target, places: list[int]) -> bool:
        """The usual case: every tensor has memory that can be filled, none twice. The core compares
        and reads."""
        if len(places) == len(target.names):
            names, values = target.names, target.values
        else:
            names = [target.names[i] for i in places]
            values = [target.values[i] for i in places]
        values = tensors.lend(values, True)
        batch = _core.Batch(names, values, True)
        addresses = [address for address in batch.addresses() if address]
        if len(set(addresses)) != len(addresses):
            return False
        sizes = batch.sizes()

        def check() -> None:
            have = [batch.tensor(i)[3:5] for i in range(len(batch))]
            self._check([self._stored(name) for name in names], have, False)

        if not self.show or sum(sizes) < _SHOWN_BYTES:
            try:
                self._fetch(batch, names)
            except MismatchError:
                check()  # its message names all tensors that differ, and what to do
                raise
            return True
        check()
        with Bar(f"loading {self.name}", sum(sizes)) as bar:
            done = 0
            for part in _groups(sizes, _SHOWN_BYTES):
                some = [names[i] for i in part]
                self._fetch(_core.Batch(some, [values[i] for i in part], True), some)
                done += sum(sizes[i] for i in part)
                bar.update(done)
        return True

    def _plan(
        self, target: tensors.Target, places: list[int], takers: dict[int, Any], cast: bool
    ) -> list[_Read]:
        reads = [self._part(target.names[i]) for i in places]
        local = [(n, i) for n, i in enumerate(places) if i not in takers]
        batch = _core.Batch(
            [target.names[i] for _, i in local], [target.values[i] for _, i in local], True
        )
        have: list[tuple[int, tuple[int, ...]]] = [(0, ())] * len(places)
        for at, (n, _) in enumerate(local):
            have[n] = batch.tensor(at)[3:5]
        for n, i in enumerate(places):
            if i in takers:
                have[n] = (takers[i].code, takers[i].shape)
        self._check(reads, have, cast)
        addresses = dict(zip((n for n, _ in local), batch.addresses(), strict=True))
        self._drop_tied(reads, addresses, [target.names[i] for i in places])
        for n, i in enumerate(places):
            read, taker, value = reads[n], takers.get(i), target.values[i]
            if read.item is False:  # tied to one before: filled with it
                read.item = None
            elif read.code != have[n][0]:
                read.item = _Later(tensors.copier(value))
            elif taker is not None:
                read.item = tensors.device_place(taker) or _Later(taker.take)
            else:
                read.item = value
        return reads

    def _drop_tied(self, reads: list[_Read], addresses: dict[int, int], names: list[str]) -> None:
        first: dict[int, int] = {}
        for n, address in addresses.items():
            before = first.setdefault(address, n) if address else n
            if before == n or reads[before].shape != reads[n].shape:
                continue
            here, there = (self._row(names[k])[7] for k in (n, before))
            if here != there:
                raise MismatchError(
                    f"'{names[before]}' and '{names[n]}' share memory, but model '{self.name}' "
                    "has different values for them"
                )
            reads[n].item = False

    def _check(
        self, reads: list[_Read], have: list[tuple[int, tuple[int, ...]]], cast: bool
    ) -> None:
        wrong = []
        for read, (code, shape) in zip(reads, have, strict=True):
            if tuple(shape) != tuple(read.shape):
                wrong.append(
                    f"'{read.name}' has shape {tuple(shape)}, but the stored shape is "
                    f"{tuple(read.shape)}"
                )
            elif code != read.code and not (cast and tensors.can_cast(read.code, code)):
                ours, stored = tensors.name_of(code), tensors.name_of(read.code)
                hint = " (cast=True converts)" if self.advice is _ADVICE else ""
                if not tensors.can_cast(read.code, code):
                    hint = " (cast=True converts only to floating-point types)" if cast else ""
                wrong.append(f"'{read.name}' is {ours}, but the stored tensor is {stored}{hint}")
        if wrong:
            more = f", and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise MismatchError(
                f"model '{self.name}' does not fit: " + "; ".join(wrong[:_NAMED]) + more
            )

    def _map_some(self, reads: list[_Read], takers: list[Any], mapped: bool) -> None:
        """Maps tensors without memory of their own, or all that can take over memory if a mapping
        was requested."""
        mine = [
            n
            for n, taker in enumerate(takers)
            if taker is not None and isinstance(reads[n].item, _Later)
        ]
        mine = [n for n in mine if (mapped or takers[n].mapped) and reads[n].slices is None]
        if not mine:
            return
        private = any(takers[n].mapped for n in mine)
        view = self.source.map(private, self.verify)
        for n in mine:
            memory = view.memory(self.index[reads[n].name])
            takers[n].take(Fresh(reads[n].code, reads[n].shape, memory))
            reads[n].item = None

    # --- what is new ----------------------------------------------------------------------------

    def whole(self, framework: str | None, mapped: bool, device: Any) -> Any:
        """The saved structure with new tensors; tied tensors are one object."""
        names = self.names if self.chosen is None else self.chosen
        if mapped:
            return self._tree(self._mapped(names, framework, device))
        adapters = self._adapters(framework)
        reads, twins, asked = [], {}, set(names)
        for name in names:
            twin = self._twin(name)
            if twin in asked and not self.slices and name not in self.layouts:
                twins[name] = twin
                continue
            read = self._part(name) if name not in self.layouts else self._local(name)
            read.item = adapters(name).empty(read.code, read.shape, device)
            reads.append(read)
        self._run(reads)
        made = {read.name: adapters(read.name).result(read.item, device) for read in reads}
        for name, template in self.layouts.items():
            if name in made:
                made[name] = tensors.laid_out_like(template, made[name])
        if self.slices:
            made = {name: self._squeezed(name, value) for name, value in made.items()}
        return self._tree({name: made[twins.get(name, name)] for name in names})

    def like(self, template: Any, mapped: bool, keep: bool, ignore: bool) -> Any:
        """A new tree with the structure of `template`."""
        return tensors.like(template, self.whole(None, mapped, None), keep, ignore)

    def _tree(self, made: dict[str, Any]) -> Any:
        return made if self.slices else decode(self.model.structure, made)

    def _twin(self, name: str) -> str | None:
        tied = self._row(name)[8]
        return None if tied < 0 else self._all_rows()[tied][0]

    def _adapters(self, framework: str | None) -> Callable[[str], Any]:
        """The adapter that creates the tensor of a name; "saved": the framework it was saved from,
        if known and available."""
        if framework != "saved":
            one = tensors.framework(framework)
            return lambda name: one
        whose = frameworks(self.model.structure)
        made = {
            word: tensors.framework(word) for word in set(whose.values()) if tensors.is_loaded(word)
        }
        return lambda name: made.get(whose.get(name, ""), tensors.framework(None))

    def _mapped(self, names: list[str], framework: str | None, device: Any) -> dict[str, Any]:
        adapter = tensors.framework(framework)
        view = self.source.map(adapter.PRIVATE_VIEWS, self.verify)
        made: dict[str, Any] = {}
        for name in names:
            twin = self._twin(name)
            if twin in made and name not in self.slices:
                made[name] = made[twin]
                continue
            read = self._stored(name)
            fresh = Fresh(read.code, read.shape, view.memory(self.index[name]))
            made[name] = adapter.result(fresh, device)
            if name in self.slices:
                made[name] = made[name][self.slices[name]]
        return made

    # --- parts ----------------------------------------------------------------------------------

    def _part(self, name: str) -> _Read:
        read = self._stored(name)
        if name in self.slices:
            read.slices = slices_of(self.slices[name], read.shape, name)
            read.shape = tuple(count for _, _, count in read.slices)
        return read

    def _local(self, name: str) -> _Read:
        """What this process needs of a tensor with the layout of another."""
        read = self._stored(name)
        shard = tensors.shard(self.layouts[name], name)
        if shard is None or shard.whole != tuple(read.shape):
            del self.layouts[name]
            return read
        read.slices = slices_of(shard.index, read.shape, name)
        read.shape = shard.shape
        return read

    def _squeezed(self, name: str, value: Any) -> Any:
        if name not in self.slices:
            return value
        parts = _spread(self.slices[name], len(value.shape), name)
        kept = tuple(
            n for n, part in zip(value.shape, parts, strict=True) if isinstance(part, slice)
        )
        return value.reshape(kept)

    # --- reading --------------------------------------------------------------------------------

    def _run(self, reads: list[_Read]) -> None:
        """Reads in groups, so that memory which waits to be taken over stays small."""
        sizes = [read.bytes for read in reads]
        limit = (
            _GROUP_BYTES
            if any(isinstance(read.item, _Later) for read in reads)
            else _SHOWN_BYTES
            if self.show
            else 1 << 62
        )
        with Bar(f"loading {self.name}", sum(sizes), self.show) as bar:
            done = 0
            for part in _groups(sizes, limit):
                self._read([reads[i] for i in part])
                done += sum(sizes[i] for i in part)
                bar.update(done)

    def _read(self, reads: list[_Read]) -> None:
        later = {
            i: Fresh(r.code, r.shape) for i, r in enumerate(reads) if isinstance(r.item, _Later)
        }
        items = tensors.lend([later.get(i, read.item) for i, read in enumerate(reads)], True)
        names = tuple(read.name for read in reads)
        batch = _core.Batch(names, items, True)
        sliced = any(read.slices is not None for read in reads)
        self._fetch(batch, names, tuple(read.slices for read in reads) if sliced else None)
        for i, fresh in later.items():
            reads[i].item.take(fresh)

    def _fetch(
        self, batch: _core.Batch, names: Sequence[str], slices: tuple[Any, ...] | None = None
    ) -> None:
        """Fills a batch with stored tensors, or with slices of them; `names` are the batch's."""
        if slices is None:
            self.source.load(batch)
        else:
            self.source.read(batch, tuple(names), slices)


def _refuse_map(names: list[str]) -> None:
    if names:
        raise InvalidError(
            f"map=True cannot fill tensors that already have memory: {listed(names, _NAMED)} "
            "(omit map to fill them, or omit into to get mapped tensors)"
        )


def _groups(sizes: list[int], limit: int) -> Iterable[range]:
    """Consecutive positions, of about `limit` bytes each."""
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and total + size > limit:
            yield range(start, i)
            start, total = i, 0
        total += size
    if start < len(sizes):
        yield range(start, len(sizes))


def _spread(key: Any, ndim: int, name: str) -> list[slice | int]:
    """One slice or number per dimension, in the semantics of a NumPy index."""
    parts = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1 or len(parts) - len(dots) > ndim:
        raise InvalidError(
            f"the slice of '{name}' has {len(parts)} parts, but the tensor has {ndim} dimensions"
        )
    at = dots[0] if dots else len(parts)
    filled = parts[:at] + [slice(None)] * (ndim - len(parts) + len(dots)) + parts[at + len(dots) :]
    for i, part in enumerate(filled):
        if isinstance(part, slice):
            continue
        try:
            filled[i] = _number(part)
        except TypeError:
            raise InvalidError(
                f"invalid slice of '{name}': {part!r} (expected slices, integers or '...')"
            ) from None
    return filled


def _number(value: Any) -> int:
    """An integer of any kind, including NumPy's. Bools and arrays are excluded, although both have
    an __index__."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        raise TypeError
    return index(value)


def slices_of(key: Any, shape: tuple[int, ...], name: str) -> tuple[Slice, ...]:
    """An index in NumPy's semantics, as start, step and count of each dimension."""
    result = []
    for part, size in zip(_spread(key, len(shape), name), shape, strict=True):
        if isinstance(part, slice):
            try:
                numbers = range(*part.indices(size))
            except (TypeError, ValueError) as error:
                raise InvalidError(f"the slice of '{name}': {error}") from None
            result.append((numbers.start if len(numbers) else 0, numbers.step, len(numbers)))
            continue
        if not -size <= part < size:
            raise InvalidError(
                f"index {part} is out of range for '{name}', which has {size} elements in "
                "that dimension"
            )
        result.append((part % size, 1, 1))
    return tuple(result)


def _below(tree: Any, prefix: str) -> Any:
    """The part of a tree below a name; None if there is none. A key may contain dots."""
    if not prefix:
        return tree
    items = dict(enumerate(tree)) if isinstance(tree, (list, tuple)) else tree
    if not isinstance(items, dict):
        return None
    fitting = [key for key in items if prefix.startswith(f"{key}.")]
    if not fitting:
        return None
    key = max(fitting, key=lambda key: len(str(key)))
    return _below(items[key], prefix[len(str(key)) + 1 :])
