"""Try every recipe of a folder of clones: `python -m tests.recipe_trial FOLDER [--all]`. Prints counts and each fault."""

from __future__ import annotations

import re
import sys
import traceback
from collections import Counter
from pathlib import Path

from sparkdash.catalog import importers
from sparkdash.catalog.importers import write
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import LaunchContext
from sparkdash.engines.flag_check import flag_complaints
from sparkdash.engines.flag_table import flag_table
from sparkdash.engines.registry import adapter
from sparkdash.errors import SparkdashError
from tests.recipe_trial import sources
from tests.recipe_trial.compare import differences, flags_of

LAUNCH = LaunchContext(port=18000, containerised=True, hf_home="/h", cache_dir="/c", labels={})
_FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]+)")

_ELSEWHERE = ("host", "port", "model", "model-path", "served-model-name")


class Trial:
    """Counts over all recipes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.findings: Counter[str] = Counter()

    def tell(self, what: str, recipe: sources.Recipe, text: str = "") -> None:
        self.counts[what] += 1
        self.counts[f"{recipe.form}: {what}"] += 1
        if text:
            print(f"{what.upper()} {recipe.name} ({recipe.form}): {text}")

    def run(self, recipe: sources.Recipe) -> None:
        self.tell("tried", recipe)
        try:
            imported = importers.import_profiles(recipe.text, "tried" if recipe.form != "compose" else None)
        except SparkdashError as error:
            self.tell("refused", recipe, error.text())
            return
        except Exception:  # noqa: BLE001 - a crash is what the trial looks for
            self.tell("crashed", recipe, traceback.format_exc())
            return
        self.tell("imported", recipe)
        given = {one["profile"]: one | {"image": one.get("image") or "x"} for one in imported.profiles}
        texts = {name: write.yaml_text(one, imported, "x") for name, one in given.items()}
        loaded = write.load_imported(texts)
        if loaded.problems:
            self.tell("unloadable", recipe, "; ".join(map(str, loaded.problems)))
            return
        remarks = "\n".join(map(str, imported.remarks))
        profiles = list(loaded.profiles.values())
        self.compare(recipe, profiles, remarks)
        self.named(recipe, profiles, remarks)
        for profile in profiles:
            for one in flag_complaints(profile):
                self.findings[f"{profile.engine} {one.path[0]}: {one.message} | {one.hint[:60]}"] += 1

    def compare(self, recipe: sources.Recipe, profiles: list[Profile], remarks: str) -> None:
        expected = recipe.runs if recipe.runs is not None else sources.commands(recipe.text)
        if (
            recipe.form in ("compose", "llama-swap")
            or expected is None
            or len(expected) != len(profiles)
            or any("$" in word for line in expected for word in line)
        ):
            self.tell("words only", recipe)
            self.words(recipe, profiles, remarks)
            return
        for words, profile in zip(expected, profiles, strict=True):
            try:
                argv = _argv(profile)
            except SparkdashError as error:
                self.tell("not startable", recipe, error.text())
                return
            source, made = flags_of(words, profile.engine), flags_of(argv, profile.engine)
            wrong = differences(source, made, remarks)
            self.tell("differs" if wrong else "equal", recipe, "; ".join(wrong))

    def words(self, recipe: sources.Recipe, profiles: list[Profile], remarks: str) -> None:
        """Where the whole line is not worked out: each flag in the text is in a profile or in a remark."""
        known = {kind: table.by_word for kind in {one.engine for one in profiles} if (table := flag_table(kind))}
        text = re.sub(r"^\s*#.*$", "", recipe.text, flags=re.MULTILINE)
        made = " ".join(word for one in profiles for word in [*_try_argv(one), *one.args]).replace("_", "-")
        for name in dict.fromkeys(_FLAG.findall(text)):
            word = f"--{name.replace('_', '-')}"
            is_known = any(word in table for table in known.values())
            if is_known and word[2:] not in made and name not in remarks and word[2:] not in _ELSEWHERE:
                self.tell("missing", recipe, word)

    def named(self, recipe: sources.Recipe, profiles: list[Profile], remarks: str) -> None:
        for mod in recipe.mods:
            if mod.rpartition("/")[2] not in remarks:
                self.tell("mod lost", recipe, mod)
        if recipe.solo and any(one.nodes != 1 for one in profiles):
            self.tell("solo on two", recipe, str(recipe.ranks))


def _argv(profile: Profile) -> list[str]:
    return list(adapter(profile.engine).container(profile.replace(nodes=1), LAUNCH).argv)


def _try_argv(profile: Profile) -> list[str]:
    try:
        return _argv(profile)
    except SparkdashError:
        return []


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    trial = Trial()
    for one in sources.recipes(Path(sys.argv[1])):
        trial.run(one)
    print("\nFindings of the flag tables:")
    for text, count in trial.findings.most_common():
        print(f"{count:5} {text}")
    print("\nCounts:")
    for text, count in sorted(trial.counts.items()):
        print(f"{count:5} {text}")
