"""The exception classes: what users catch, and what they read."""

from __future__ import annotations

import builtins
import errno
import pickle

import ligament
import pytest

ALSO = {
    ligament.InvalidError: ValueError,
    ligament.MismatchError: ValueError,
    ligament.NotFoundError: KeyError,
    ligament.ExistsError: FileExistsError,
    ligament.TimeoutError: builtins.TimeoutError,
    ligament.PeerError: ConnectionError,
    ligament.DeniedError: PermissionError,
    ligament.StorageError: OSError,
    ligament.CorruptError: RuntimeError,
    ligament.LimitError: RuntimeError,
    ligament.BusyError: RuntimeError,
    ligament.ClosedError: RuntimeError,
    ligament.UnsupportedError: NotImplementedError,
    ligament.NoMemoryError: MemoryError,
}


@pytest.mark.parametrize("kind", ALSO)
def test_each_is_an_error_and_what_python_users_catch(kind: type[ligament.Error]) -> None:
    error = kind("tensor 'x' is wrong")
    assert isinstance(error, ligament.Error) and isinstance(error, RuntimeError)
    assert isinstance(error, ALSO[kind])
    assert str(error) == "tensor 'x' is wrong"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error)


def test_system_errors_have_an_errno() -> None:
    assert ligament.ExistsError("x").errno == errno.EEXIST
    assert ligament.DeniedError("x").errno == errno.EACCES
    error = ligament.StorageError("x")
    assert error.errno is None
    error.errno = errno.ENOSPC
    assert pickle.loads(pickle.dumps(error)).errno == errno.ENOSPC


def test_sentences_name_the_thing(store: ligament.Store) -> None:
    with pytest.raises(KeyError, match="no model 'absent'") as caught:
        store.load("absent")
    assert str(caught.value)[0] != "'"  # KeyError would quote it
    with pytest.raises(ligament.InvalidError, match="mode"):
        ligament.Store("mem:", mode="z")
    with pytest.raises(ligament.Error, match="nosuch"):
        ligament.Store("nosuch://place")
    with pytest.raises(ligament.Error, match="colour"):
        ligament.Store("mem:?colour=red")
