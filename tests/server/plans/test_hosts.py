from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import InputError
from seekserve.server.plans.hosts import Host, is_loopback_name, parse_hosts, read_hostfile

TWO = (Host(name="a", slots=8), Host(name="b-1.example", slots=4))


def test_hosts_and_slots_from_a_line_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# ours\na slots=8 max-slots=8\n\nb-1.example slots=4  # the small one\n")
    assert parse_hosts("a:8, b-1.example:4") == read_hostfile(tmp_path / "hosts") == TWO


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a", "host a has no slots"),
        ("a:0", "host a has 0 slots"),
        ("a:x", "host a has x slots"),
        ("a:8,a:8", "host a stands in it twice"),
        ("a:8,,b:8", "'' is not a host name"),
        ("-x:8", "'-x' is not a host name"),
        ("a b:8", "'a b' is not a host name"),
        ("", "'' is not a host name"),
    ],
)
def test_what_is_no_host_list_is_said(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"--hosts: .*{sentence}"):
        parse_hosts(text)


@pytest.mark.parametrize("text", ["", "# nobody\n"])
def test_an_empty_hostfile_names_no_host(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(InputError, match="it names no host"):
        read_hostfile(tmp_path / "hosts")
    with pytest.raises(InputError, match="cannot be read"):
        read_hostfile(tmp_path)


@pytest.mark.parametrize(
    ("name", "is_loopback"), [("localhost", True), ("127.0.1.1", True), ("::1", True), ("node1", False), ("", False)]
)
def test_loopback_names(name: str, is_loopback: bool) -> None:
    assert is_loopback_name(name) is is_loopback
