"""Access keys from Amazon's environment variables and files."""

import subprocess
from pathlib import Path

import ligament
import pytest
from ligament.credentials import aws

LIBRARY = Path(ligament.__file__).parent / "lib/libligament_s3.so"
built = pytest.mark.skipif(not LIBRARY.exists(), reason="built without libcurl's headers")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = file-key\naws_secret_access_key = file%secret\n"
        "[other]\naws_access_key_id=other-key\naws_secret_access_key=other-secret\n"
        "aws_session_token=other-token\n"
    )
    (folder / "config").write_text(
        "[default]\nregion = eu-1\ns3 =\n    addressing_style = path\n"
        "[profile other]\nregion = eu-2\nendpoint_url = http://gate:1\n"
    )
    return tmp_path


def test_files(home: Path) -> None:
    assert aws.find({"HOME": str(home)}) == {
        "s3.access_key": "file-key",
        "s3.secret_key": "file%secret",
        "s3.session_token": None,
        "s3.region": "eu-1",
    }
    assert aws.find({"HOME": str(home), "AWS_PROFILE": "other"}) == {
        "s3.access_key": "other-key",
        "s3.secret_key": "other-secret",
        "s3.session_token": "other-token",
        "s3.region": "eu-2",
        "s3.endpoint": "http://gate:1",
    }


def test_variables_have_precedence(home: Path) -> None:
    found = aws.find(
        {
            "HOME": str(home),
            "AWS_PROFILE": "other",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "eu-3",
            "AWS_ENDPOINT_URL": "http://other:1",
            "AWS_ENDPOINT_URL_S3": "http://s3:1",
        }
    )
    assert found == {
        "s3.access_key": "key",
        "s3.secret_key": "secret",
        "s3.session_token": None,  # the profile's token belongs to the profile's keys
        "s3.region": "eu-3",
        "s3.endpoint": "http://s3:1",
    }


def test_without_any(tmp_path: Path) -> None:
    assert aws.find({"HOME": str(tmp_path)}) == {}
    broken = tmp_path / "broken"
    broken.write_bytes(b"no section\n\xff\n")
    assert aws.find({"HOME": str(tmp_path), "AWS_CONFIG_FILE": str(broken)}) == {}
    named = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"), "AWS_PROFILE": "none"}
    assert aws.find({"HOME": str(tmp_path), **named}) == {}


@built
def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "line\nbreak")
    with pytest.raises(ligament.InvalidError, match="s3.secret_key") as caught:
        ligament.Store("s3://bucket/x?endpoint=http://127.0.0.1:1&timeout=1", mode="r")
    assert "break" not in str(caught.value)


@built
def test_command_line(home: Path, program: Path) -> None:
    """The profile's endpoint is used: nothing listens there."""
    (home / ".aws/config").write_text("[profile other]\nendpoint_url = http://127.0.0.1:1\n")
    done = subprocess.run(
        [program, "ls", "s3://bucket/x?timeout=1&mode=r"],
        env={"HOME": str(home), "AWS_PROFILE": "other"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no connection to http://127.0.0.1:1" in done.stderr
    assert "other-secret" not in done.stderr
