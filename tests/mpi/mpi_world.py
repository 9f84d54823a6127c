"""A repository whose stock engine has two ranks, for the fake tritonserver under the real mpirun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launch_world import World

from seekserve.server.launch import Launch

ENGINE_CONFIG = """\
backend: "tensorrtllm"
parameters {{ key: "gpt_model_path" value {{ string_value: "{engine}" }} }}
"""
# Stands in for ssh: the "other node" is a session of its own on this machine, without this shell's variables.
AGENT = """\
#!/bin/sh
node=$1
shift
FAKE_NODE=$node exec setsid env -u SEEKSERVE_RUN_DIR sh -c "$*"
"""


def add_engine(root: Path, *, tp: int = 2, name: str = "tensorrt_llm") -> None:
    """A stock model and its engine folder, of which only config.json matters here."""
    engine = root / "engine"
    engine.mkdir(exist_ok=True)
    mapping = {"world_size": tp, "tp_size": tp, "pp_size": 1}
    (engine / "config.json").write_text(json.dumps({"pretrained_config": {"mapping": mapping}}))
    (root / "repo" / name / "1").mkdir(parents=True)
    (root / "repo" / name / "config.pbtxt").write_text(ENGINE_CONFIG.format(engine=engine))


class MpiWorld(World):
    @classmethod
    def build(cls, root: Path, models: tuple[str, ...] = ("alpha",)) -> MpiWorld:
        World.build(root, models)
        add_engine(root)
        return cls(root=root)

    def with_agent(self) -> dict[str, str]:
        """The environment in which mpirun reaches other nodes without a network."""
        agent = self.root / "agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        return {**self.env, "OMPI_MCA_plm_rsh_agent": str(agent)}


def rank_pids(launch: Launch) -> dict[int, int]:
    """Rank -> its tritonserver, on this machine."""
    group: Any = launch._run._process  # type: ignore[union-attr]
    return {int(who.rpartition(" ")[2]): pid for who, pid in group.members().items()}


def environment_of(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(word.decode().partition("=")[::2] for word in words if word)


def argv_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
