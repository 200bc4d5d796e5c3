"""Requests to the S3 gateway that only tests make: buckets and their settings (signature version 2,
so that nothing is shared with what is tested)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
from email.utils import formatdate
from urllib.parse import urlsplit


def request(
    cluster: dict[str, str], method: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    date = formatdate(usegmt=True)
    what = f"{method}\n\n\n{date}\n{path}"
    mac = hmac.new(cluster["S3_SECRET"].encode(), what.encode(), hashlib.sha1).digest()
    signature = base64.b64encode(mac).decode()
    connection = http.client.HTTPConnection(urlsplit(cluster["S3_ENDPOINT"]).netloc, timeout=30)
    try:
        headers = {"Date": date, "Authorization": f"AWS {cluster['S3_KEY']}:{signature}"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def make_bucket(cluster: dict[str, str], name: str, versioned: bool = False) -> None:
    status, text = request(cluster, "PUT", f"/{name}")
    assert status == 200, text
    if versioned:
        body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        status, text = request(cluster, "PUT", f"/{name}?versioning", body)
        assert status == 200, text
