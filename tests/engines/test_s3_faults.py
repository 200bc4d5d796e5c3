"""Stores on S3 when the gateway, the network or the credentials have faults."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

import ligament
import numpy as np
import pytest
from engine_writers import campaign, check, wait_for_progress, writers
from s3_admin import make_bucket, request
from s3_proxy import FAULTS, Message, error, proxy, randomly

# What takes an hour elsewhere takes seconds: pins, claims and the grace of removed packs.
WINDOWS = "&ttl=2&grace=1"


def model(number: int) -> dict[str, np.ndarray]:
    """In the commit itself, one request, several parts."""
    size = (50, 100_000, 3_000_000)[number % 3]
    return {"w": np.random.default_rng(number).random(size), "n": np.array(number)}


def same(loaded: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(loaded[name], expected[name]) for name in expected)


def test_every_fault(s3_uri: Callable[..., str], cluster: dict[str, str]) -> None:
    """One request in six has a fault; nothing fails, nothing is lost, nothing is there twice."""
    with proxy(cluster["S3_ENDPOINT"], randomly(0.16, 1)) as faulty:
        with ligament.Store(s3_uri(faulty.endpoint)) as store:
            for number in range(18):
                store.save(f"m{number}", model(number))
                if number % 4 == 3:
                    store.retire(f"m{number - 2}")
                assert same(store.load(f"m{number}"), model(number))
            names = sorted(store)
            store.compact()
        assert set(faulty.seen) == set(FAULTS)
    kept = sorted(f"m{n}" for n in range(18) if n not in (1, 5, 9, 13))
    assert names == kept
    with ligament.Store(s3_uri(), mode="r") as store:
        assert sorted(store) == kept
        for name in kept:
            assert same(store.load(name), model(int(name[1:])))
        assert store.check().problems == []


@pytest.mark.parametrize("fault", FAULTS)
def test_commit(s3_uri: Callable[..., str], cluster: dict[str, str], fault: str) -> None:
    """The one request that must not be repeated blindly: a commit, each with every fault."""
    armed: list[str] = []

    def choose(request: Message) -> str | None:
        is_commit = request.line.startswith("PUT") and "/cat/" in request.line
        return armed.pop() if is_commit and armed else None

    with proxy(cluster["S3_ENDPOINT"], choose) as faulty:
        with ligament.Store(s3_uri(faulty.endpoint)) as store:
            store.save("before", model(0))
            armed.append(fault)
            store.save("m", model(3))
            assert faulty.seen == [fault]
            store.save("after", model(6))
    with ligament.Store(s3_uri(), mode="r") as store:
        assert sorted(store) == ["after", "before", "m"]


def test_writers_side_by_side(s3_uri: Callable[..., str], tmp_path: Path) -> None:
    acknowledged = campaign(s3_uri() + WINDOWS, tmp_path, 8, 3, 5.0, lambda _: None)
    assert acknowledged > 20


def test_writers_through_faults(
    s3_uri: Callable[..., str], cluster: dict[str, str], tmp_path: Path
) -> None:
    with proxy(cluster["S3_ENDPOINT"], randomly(0.05, 2)) as faulty:
        campaign(s3_uri(faulty.endpoint) + WINDOWS, tmp_path, 4, 2, 5.0, lambda _: None)


@pytest.mark.soak
def test_writers_for_long(
    s3_uri: Callable[..., str], cluster: dict[str, str], tmp_path: Path
) -> None:
    with proxy(cluster["S3_ENDPOINT"], randomly(0.05, 3)) as faulty:
        campaign(s3_uri(faulty.endpoint) + WINDOWS, tmp_path, 8, 40, 5.0, lambda _: None)


def test_gateway_restarted(
    s3_uri: Callable[..., str], engines: Callable[..., None], tmp_path: Path
) -> None:
    """In the middle of saves and loads: they wait, and none fails."""
    with ligament.Store(s3_uri()):
        pass
    with writers(s3_uri(), 3, tmp_path) as running:
        for _ in range(2):
            wait_for_progress(running)
            engines("restart", "rgw")
        wait_for_progress(running)
        for writer in running:
            writer.end()
        check(s3_uri(), running)
        failed = [fact for writer in running for fact in writer.facts() if "failed" in fact]
        assert failed == []


def test_osd_killed(
    s3_uri: Callable[..., str], engines: Callable[..., None], tmp_path: Path
) -> None:
    with ligament.Store(s3_uri()):
        pass
    with writers(s3_uri(), 3, tmp_path) as running:
        wait_for_progress(running)
        engines("kill", "osd.1")
        wait_for_progress(running)
        engines("revive", "osd.1")
        wait_for_progress(running)
        for writer in running:
            writer.end()
        check(s3_uri(), running)


def test_missing_bucket(s3_uri: Callable[..., str]) -> None:
    with pytest.raises(ligament.NotFoundError, match="the bucket does not exist"):
        ligament.Store(s3_uri(bucket="no-such-bucket"))


def test_bucket_deleted(s3_uri: Callable[..., str], cluster: dict[str, str]) -> None:
    """Under an open store: an error, not the end of the log."""

    deleted = False

    def choose(request: Message) -> bytes | None:
        return error(404, "NoSuchBucket") if deleted else None

    with proxy(cluster["S3_ENDPOINT"], choose) as gateway:
        with ligament.Store(s3_uri(gateway.endpoint)) as store:
            store.save("m", model(0))
            deleted = True
            for work in (lambda: list(store), lambda: store.compact(), lambda: store.check()):
                with pytest.raises(ligament.StorageError, match="the bucket does not exist"):
                    work()
            deleted = False
            assert list(store) == ["m"]


def test_wrong_secret(s3_uri: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    with pytest.raises(ligament.DeniedError, match="the secret access key is wrong") as caught:
        ligament.Store(s3_uri())
    assert "not-the-secret" not in str(caught.value)


def test_unknown_key(s3_uri: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(ligament.DeniedError, match="does not recognise the access key"):
        ligament.Store(s3_uri())


def test_unreachable(s3_uri: Callable[..., str]) -> None:
    with pytest.raises(ligament.Error, match=r"no connection to http://127.0.0.1:1\b"):
        ligament.Store(s3_uri("http://127.0.0.1:1"))


def test_silent_server(s3_uri: Callable[..., str], cluster: dict[str, str]) -> None:
    """A server that stops answering: the operation ends by timeout=."""
    stopped: list[bool] = []
    with (
        proxy(cluster["S3_ENDPOINT"], lambda _: "reset" if stopped else None) as faulty,
        ligament.Store(s3_uri(faulty.endpoint) + "&timeout=2") as store,
    ):
        store.save("m", model(0))
        stopped.append(True)
        with pytest.raises(ligament.Error, match=r"127\.0\.0\.1"):
            store.save("n", model(1))
        stopped.clear()
        assert same(store.load("m"), model(0))
        store.save("n", model(1))


def test_wrong_clock(s3_uri: Callable[..., str], cluster: dict[str, str]) -> None:
    skewed = error(403, "RequestTimeTooSkewed", "The difference is too large.")
    with (
        proxy(cluster["S3_ENDPOINT"], lambda _: skewed) as faulty,
        pytest.raises(ligament.DeniedError, match="differ by more than 15 minutes"),
    ):
        ligament.Store(s3_uri(faulty.endpoint))


@pytest.mark.parametrize("hours", [30, -30])
def test_changed_clock(s3_uri: Callable[..., str], cluster: dict[str, str], hours: int) -> None:
    """A gateway whose clock is changed while stores are open: what expires by its clock may expire
    early or late, but nothing that was acknowledged is lost."""
    changed: list[bool] = []

    def skew(answer: bytes) -> bytes:
        head, _, body = answer.partition(b"\r\n\r\n")
        rows = head.split(b"\r\n")
        for i, row in enumerate(rows):
            if changed and row.lower().startswith(b"date:"):
                date = parsedate_to_datetime(row[5:].decode()) + timedelta(hours=hours)
                rows[i] = b"Date: " + format_datetime(date, usegmt=True).encode()
        return b"\r\n".join(rows) + b"\r\n\r\n" + body

    with (
        proxy(cluster["S3_ENDPOINT"], lambda _: None, change=skew) as gateway,
        ligament.Store(s3_uri(gateway.endpoint)) as store,
        ligament.Store(s3_uri()) as other,
    ):
        for number in range(6):
            store.save(f"m{number}", model(number))
        changed.append(True)
        for number in range(6, 12):
            store.save(f"m{number}", model(number))
            other.save(f"n{number}", model(number))
        store.retire("m2")
        store.compact()
        for name in [f"m{n}" for n in range(12) if n != 2] + [f"n{n}" for n in range(6, 12)]:
            assert same(other.load(name), model(int(name[1:])))
        assert other.check().problems == []


def test_revoked_key(s3_uri: Callable[..., str], cluster: dict[str, str], prefix: str) -> None:
    """The key is removed while a store is open: a sentence, and what was saved stays."""
    mine = {**cluster, "S3_KEY": prefix, "S3_SECRET": "secret"}
    admin = ["radosgw-admin", "-c", cluster["RADOS_CONF"], "-n", "client.rgw", f"--uid={prefix}"]
    keys = [f"--access-key={prefix}", "--secret-key=secret"]

    def run(*command: str) -> None:
        subprocess.run([*admin, *command], check=True, capture_output=True)

    run("user", "create", "--display-name=test", *keys)
    make_bucket(mine, prefix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", prefix)
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        with ligament.Store(s3_uri(bucket=prefix)) as store:
            store.save("kept", model(1))
            run("key", "rm", *keys[:1])
            with pytest.raises(ligament.DeniedError, match="does not recognise the access key"):
                store.save("m", model(2))
            with pytest.raises(ligament.DeniedError, match="does not recognise the access key"):
                store.load("kept")
            run("key", "create", *keys)
            assert same(store.load("kept"), model(1))
            store.save("m", model(2))
            assert store.check().problems == []


def test_full(s3_uri: Callable[..., str], cluster: dict[str, str]) -> None:
    """Quota used up during a save: a sentence, and what was saved before stays."""
    full: list[bool] = []

    def choose(request: Message) -> bytes | None:
        is_data = request.line.startswith("PUT") and "/pack/" in request.line
        return error(403, "QuotaExceeded") if full and is_data else None

    with (
        proxy(cluster["S3_ENDPOINT"], choose) as faulty,
        ligament.Store(s3_uri(faulty.endpoint)) as store,
    ):
        store.save("kept", model(1))
        full.append(True)
        with pytest.raises(ligament.LimitError, match="quota"):
            store.save("m", model(2))
        assert same(store.load("kept"), model(1))
        full.clear()
        store.save("m", model(2))
        assert store.check().problems == []


def test_no_conditional_writes(
    cluster: dict[str, str], prefix: str, s3_uri: Callable[..., str]
) -> None:
    """On a versioned bucket radosgw lets every conditional write succeed: writers are refused, one
    that promises to be alone is not, and readers read."""
    make_bucket(cluster, prefix, versioned=True)
    with pytest.raises(ligament.UnsupportedError, match=r"8 of 8 .*writer=single"):
        ligament.Store(s3_uri(bucket=prefix))
    with ligament.Store(s3_uri(bucket=prefix) + "&writer=single") as store:
        store.save("m", model(1))
    with pytest.raises(ligament.UnsupportedError, match="writer=single"):
        with ligament.Store(s3_uri(bucket=prefix)) as store:
            store.save("n", model(1))
    with ligament.Store(s3_uri(bucket=prefix), mode="r") as store:
        assert same(store.load("m"), model(1))


def test_ignored_condition(s3_uri: Callable[..., str], cluster: dict[str, str]) -> None:
    """A server that does not know the header."""

    def choose(request: Message) -> None:
        request.head = request.head.replace(b"if-none-match: *\r\n", b"x-ignored: x\r\n")

    with (
        proxy(cluster["S3_ENDPOINT"], choose) as faulty,
        pytest.raises(ligament.Error, match="secret access key|conditional writes"),
    ):
        ligament.Store(s3_uri(faulty.endpoint))


def test_names_with_odd_letters(s3_uri: Callable[..., str], prefix: str) -> None:
    uri = s3_uri().replace(prefix, f"{prefix}/a b+c%25d/é&amp;~'()")
    uri = uri.replace("&amp;", "%26")
    with ligament.Store(uri) as store:
        store.save("m", model(1))
    with ligament.Store(uri, mode="r") as store:
        assert same(store.load("m"), model(1))


def test_certificates(s3_uri: Callable[..., str], cluster: dict[str, str], tmp_path: Path) -> None:
    """An untrusted certificate is refused; with its authority's certificate it is verified."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=gateway"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with proxy(cluster["S3_ENDPOINT"], lambda _: None, context) as gate:
        with pytest.raises(ligament.DeniedError, match=r"not trusted.*\?ca="):
            ligament.Store(s3_uri(gate.endpoint))
        with ligament.Store(f"{s3_uri(gate.endpoint)}&ca={certificate}") as store:
            store.save("m", model(2))
            assert same(store.load("m"), model(2))
        localhost = gate.endpoint.replace("127.0.0.1", "localhost")
        with pytest.raises(ligament.DeniedError, match="not trusted"):
            ligament.Store(f"{s3_uri(localhost)}&ca={certificate}")


def test_damaged_commit(s3_uri: Callable[..., str], cluster: dict[str, str], prefix: str) -> None:
    """An entry of the log that was overwritten hides none of the others, and is repaired."""
    with ligament.Store(s3_uri()) as store:
        for number in range(3):
            store.save(f"m{number}", model(number))
    log, end = f"/{cluster['S3_BUCKET']}/{prefix}/cat", 1
    while request(cluster, "GET", f"{log}/{end:020}")[0] == 200:
        end += 1
    middle = end - 2  # that of m1
    status, text = request(cluster, "PUT", f"{log}/{middle:020}")
    assert status == 200, text
    with ligament.Store(s3_uri()) as store:
        assert sorted(store) == ["m0", "m2"]
        assert same(store.load("m2"), model(2))
        assert any(f"commit {middle}" in str(problem) for problem in store.check().problems)
        store.check(repair=True)
        store.save("n", model(1))
        assert store.check().problems == []
