"""`seekserve swap` from outside, with a launch that only answers orders."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.swap.place import BF16, Place

from seekserve.cli import main
from seekserve.server.orders import OrderResult, SwapOrder, pending_orders

Streams = pytest.CaptureFixture[str]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["swap", *args])
    return int(caught.value.code or 0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    made.render(made.bundle("fp8"))
    made.bundle("bf16", kv=BF16, engine="synthetic")
    made.launch()
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


@contextmanager
def answering(place: Place, *results: tuple[str, str]) -> Iterator[list[SwapOrder]]:
    """A launch that answers the first order with (state, text), one after the other."""
    taken: list[SwapOrder] = []
    stop = threading.Event()

    def answer() -> None:
        while not stop.wait(0.01):
            for path in pending_orders(place.run_dir):
                order = SwapOrder.read(path)
                path.unlink()
                taken.append(order)
                for state, text in results:
                    OrderResult(id=order.id, state=state, text=text, model=order.model, took_s=1.5).write(place.run_dir)
                    stop.wait(0.5)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()


def test_the_order_holds_what_was_planned_and_the_end_is_told(place: Place, capsys: Streams) -> None:
    with answering(place, ("running", "it loads"), ("done", "the new variant serves")) as taken:
        assert run(str(place.repository), "--to", "bf16") == 0
    out, err = capsys.readouterr()
    assert out.startswith("swap model chat of launch 0badcafe\n")
    assert "how      side-by-side: both fit at once" in out
    assert out.endswith("  it loads\ndone after 1.5 s: the new variant serves\n")
    assert err == ""
    (order,) = taken
    assert (order.how, order.bundle_dir) == ("side-by-side", str(place.root / "bundle-bf16"))
    assert (order.old_bundle_dir, order.drain_timeout_s) == (str(place.root / "bundle-fp8"), 300.0)
    assert set(order.files) == {"config.pbtxt", "rendered.json"}


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("failed", 4), ("refused", 3)])
def test_the_exit_code_is_the_end_of_the_order(place: Place, capsys: Streams, state: str, code: int) -> None:
    with answering(place, ("running", "it loads"), (state, "so it ended")):
        assert run(str(place.repository), "--to", "bf16", "--json") == code
    out, err = capsys.readouterr()
    assert json.loads(out)["state"] == state
    assert err == "  it loads\n"


def test_a_dry_run_orders_nothing(place: Place, capsys: Streams) -> None:
    with answering(place) as taken:
        assert run(str(place.repository), "--to", "bf16", "--how", "drain", "--dry-run", "--json") == 0
        assert run("--to", "bf16", "--dry-run") == 0
    assert taken == []
    out = capsys.readouterr().out
    data, _, text = out.partition("\n}\n")
    assert json.loads(data + "\n}")["why"].startswith("asked for; both fit at once")
    assert "limits   2048 -> 2048 tokens per request" in text


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        ((), 2, "Missing option '--to'"),
        (("--to", "int8"), 2, "no variant of that name"),
        (("--to", "fp8"), 3, "already"),
        (("--to", "bf16", "--model", "other"), 2, "serves no model 'other'"),
        (("--to", "bf16", "--gpus", "0"), 3, "leave it out"),
        (("--to", "bf16", "--id", "unknown0"), 2, "does not exist"),
    ],
)
def test_what_cannot_be_is_said_on_stderr(
    place: Place, capsys: Streams, args: tuple[str, ...], code: int, text: str
) -> None:
    assert run(str(place.repository), *args) == code
    out, err = capsys.readouterr()
    assert text in err
    assert out == ""


def test_a_launch_that_ends_in_between_is_a_server_error(place: Place, capsys: Streams) -> None:
    import subprocess
    import sys

    from seekserve.server.record import process_started_s

    launch = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    place.launch(pid=launch.pid, pid_started_s=process_started_s(launch.pid))
    done: list[int] = []
    swap = threading.Thread(target=lambda: done.append(run(str(place.repository), "--to", "bf16")))
    swap.start()
    while not pending_orders(place.run_dir):
        swap.join(0.01)
        assert swap.is_alive()
    launch.communicate(b"\n")
    swap.join()
    assert done == [4]
    assert "ended during the swap" in capsys.readouterr().err
    assert pending_orders(place.run_dir) == []
