"""10,000 damaged inputs: each gives profiles or an error, soon."""

import random
from pathlib import Path

from sparkdash.catalog import importers
from sparkdash.errors import ProfileError

DATA = Path(__file__).parents[1] / "data" / "imports"
INPUTS = 10_000
YAML_SHARE = 8
"""One in so many is YAML, whose reading is the slow part."""
TRIED_SHARE = 100
PIECES = (
    "'", '"', "\\", "$", "${", "}", "$(", "(", ")", "`", "\n", "#", "--", "-", "=", " ", "<", "|", ";", "&", "*", "&a ", "*a", ": ", "{", "[",
    "]", "!!python/object:os.system", "!!int x", "\t", "é", "\u2028", "\x00", "{model}", "${PORT}", "--a.b.c", "{" * 300, "[" * 300, "null", "1e999",
    "-e", "-v", "a" * 500, "9" * 5000, "<<: *a", "? ", "- ", "--speculative-config", "NaN", "vllm serve",
)  # fmt: skip


def damaged(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(text) + 1), chance.choice((0, 0, 1, 2, 8, 40))
        other = chance.randrange(len(text) + 1)
        piece = chance.choice((chance.choice(PIECES), text[other : other + size], ""))
        text = text[:at] + piece + text[at + size :]
    return text


def test_damaged_inputs_give_a_profile_or_an_error() -> None:
    """No other exception, whatever is cut out, doubled or put in; what is given can be written and tried."""
    chance = random.Random(3)
    files = sorted(path for path in DATA.rglob("*") if path.is_file())
    scripts = [path.read_text() for path in files if path.suffix != ".yaml"]
    documents = [path.read_text() for path in files if path.suffix == ".yaml"]
    good = refused = 0
    for number in range(INPUTS):
        text = damaged(chance.choice(scripts if number % YAML_SHARE else documents), chance)
        try:
            imported = importers.import_profiles(text)
        except ProfileError:
            refused += 1
            continue
        good += 1
        assert all(profile["engine"] == "generic" or profile["models"]["target"] for profile in imported.profiles)
        if number % TRIED_SHARE == 0:
            texts = {str(i): importers.yaml_text(one, imported, "x") for i, one in enumerate(imported.profiles)}
            found = importers.load_imported(texts)
            assert found.profiles or found.problems
    assert good + refused == INPUTS
    assert good > 1000
    assert refused > 1000
