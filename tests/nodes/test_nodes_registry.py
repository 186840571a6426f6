"""Registry of nodes: the file, its changes, and what is refused."""

import os
import stat
import threading
from pathlib import Path

import pytest
from refusals import refused

from sparkdash import paths
from sparkdash.domain.node import LOCAL, Node
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.nodes.node_file import add_node, read_nodes, refuse_taken_name, remove_node

NODE = Node(name="spark2", ssh="lab@spark2", host_key="ssh-ed25519 AAAA")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Path of a registry that is not there yet, in a folder that is not there either."""
    return tmp_path / "own" / "nodes.toml"


def test_nodes_come_back_as_they_were_written_in_their_order(file: Path) -> None:
    given = {"ssh": 'weird "name"\\@host', "port": 2222, "address": "192.168.100.2", "interface": "enp1s0f1np1"}
    second = NODE.replace(name="a-box", hf_home="~/ä", **given)
    assert read_nodes(file) == ()
    add_node(file, NODE)
    add_node(file, second)
    assert read_nodes(file) == (NODE, second)


def test_the_file_and_its_lock_are_the_owners_alone_and_it_says_who_writes_it(file: Path) -> None:
    file.parent.mkdir()
    file.with_suffix(".lock").touch(mode=0o644)
    add_node(file, NODE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("# Other boxes that engines run on. `sparkdash nodes add`")
    assert "host_key" in file.read_text()
    assert stat.S_IMODE(file.with_suffix(".lock").stat().st_mode) == 0o600


def test_values_that_a_person_wrote_are_read(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('[spark2]\nssh = "spark2"\nhost_key = "ssh-ed25519 AAAA"\ninterface = "enp1s0f1np1"\n')
    (node,) = read_nodes(file)
    assert (node.interface, node.port, node.hf_home) == ("enp1s0f1np1", 22, None)


@pytest.mark.parametrize("name", ["spark2", LOCAL])
def test_a_name_is_had_by_one_box(file: Path, name: str) -> None:
    add_node(file, NODE)
    with refused("node_name_taken") as caught:
        add_node(file, NODE.replace(name=name))
    assert caught.value.hint
    assert read_nodes(file) == (NODE,)
    with pytest.raises(AdmissionError):
        refuse_taken_name(name, (NODE,))


def test_a_removed_node_leaves_the_others(file: Path) -> None:
    add_node(file, NODE)
    add_node(file, NODE.replace(name="spark3"))
    assert [node.name for node in remove_node(file, "spark2")] == ["spark3"]
    with refused("node_unknown"):
        remove_node(file, "spark2")


@pytest.mark.parametrize(("text", "words"), [
    (b"\xff\xfe[spark2]", "nodes.toml"), ("spark2 = 1\n", "spark2 is not a table"), ("[spark2\n", "nodes.toml"),
    ('[local]\nssh = "x"\nhost_key = "ssh-ed25519 AAAA"\n', "name of this box"),
    ('[spark2]\nhost_key = "ssh-ed25519 AAAA"\n', "ssh: must be given"),
    ('[spark2]\nssh = "x"\nhost_key = "ssh-ed25519 AAAA"\nprot = 2\n', "prot"),
    ('[Spark_2]\nssh = "x"\nhost_key = "ssh-ed25519 AAAA"\n', "name"),
    ('[spark2]\nssh = "x"\nhost_key = "ssh-ed25519 AAAA"\nport = 70000\n', "port"),
])  # fmt: skip
def test_a_file_that_is_not_valid_is_refused_with_the_place(file: Path, text: str | bytes, words: str) -> None:
    file.parent.mkdir()
    file.write_bytes(content := text if isinstance(text, bytes) else text.encode())
    with refused("nodes_invalid") as caught:
        read_nodes(file)
    assert words in caught.value.message
    with pytest.raises(ProfileError):
        add_node(file, NODE)
    assert file.read_bytes() == content


def test_additions_at_the_same_time_lose_no_node(file: Path) -> None:
    names = [f"box{number}" for number in range(12)]
    threads = [threading.Thread(target=add_node, args=(file, NODE.replace(name=name))) for name in names]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert sorted(node.name for node in read_nodes(file)) == sorted(names)


def test_a_change_that_cannot_be_written_leaves_the_file_and_nothing_beside_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_node(file, NODE)

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(paths.os, "fsync", full)
    with refused("nodes_not_written", "No space left"):
        add_node(file, NODE.replace(name="spark3"))
    monkeypatch.undo()
    assert read_nodes(file) == (NODE,)
    assert sorted(each.name for each in file.parent.iterdir()) == ["nodes.lock", "nodes.toml"]
