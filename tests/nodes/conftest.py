"""A cluster of three nodes in memory, whose pauses are short."""

from pathlib import Path

import pytest
from fake_cluster import Cluster, NodeInMemory, NodesInMemory, cluster_in

from sparkdash.nodes.cluster import group_end, group_logs, removal


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for module, name in ((group_end, "AGAIN_S"), (group_end, "LOOK_EVERY_S"), (group_logs, "AGAIN_S")):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(removal, "AGAIN_S", 0.05)
    return cluster_in(tmp_path, NodeInMemory("local"), NodesInMemory("spark2", "spark3"))
