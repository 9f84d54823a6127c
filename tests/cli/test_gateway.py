"""`seekserve gateway` as a command: what it refuses to start, and the keys that it makes."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from click.testing import CliRunner

from seekserve.cli import cli, main
from seekserve.cli.gateway_beside import curl_line


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["gateway", *arguments])
    return int(ended.value.code or 0)


def test_a_new_key_and_its_entry_belong_together() -> None:
    text = CliRunner().invoke(cli, ["gateway", "--new-key", "team-a"]).output
    key = re.search(r"sk-seekserve-\S+", text)
    entry = re.search(r"- (\{.*\})", text)
    assert key is not None
    assert entry is not None
    data = json.loads(entry[1])
    assert (data["sha256"], data["tenant"]) == (hashlib.sha256(key[0].encode()).hexdigest(), "team-a")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--host", "0.0.0.0", "--port", "0"), 3, "refused to listen on 0.0.0.0 without API keys"),
        (("--backend", "http://x:1"), 2, "scheme 'http'"),
        (("--keys", "none.yaml"), 2, "none.yaml"),
        (("--tls-cert", "c.pem"), 2, "needs both"),
    ],
)
def test_what_must_not_be_started_is_refused_loudly(
    arguments: tuple[str, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette", reason="not installed: starlette (the gateway extra)")
    assert run(*arguments) == code
    assert says in capsys.readouterr().err


def test_the_curl_line_can_be_pasted_whatever_is_asked() -> None:
    import shlex

    arguments = shlex.split(curl_line("http://127.0.0.1:1", "m", 'it\'s "37" + 48?'))
    assert json.loads(arguments[-1])["messages"][0]["content"] == 'it\'s "37" + 48?'
