"""How easy the source tree is to read, in figures: `make metrics`.

Prints modules per folder, class names defined more than once, docstrings that open with a pronoun, long lines, circles of imports,
complex functions and long parameter lists. `--list NAME` shows the places behind one figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contract"))
import house  # noqa: E402 - tests/ is no package


def measure() -> dict[str, list[str]]:
    """Every figure as the list of its places, by name."""
    modules = house.read_tree(ROOT / "sparkdash")
    functions = house.functions(modules)
    tangled = sorted((f for f in functions if f.complexity > house.COMPLEX), key=lambda f: -f.complexity)
    greedy = sorted((f for f in functions if f.parameters > house.PARAMETERS), key=lambda f: -f.parameters)
    folders = sorted(house.modules_per_folder(modules).items(), key=lambda item: -item[1])
    return {
        "folders-over-25": [f"{name}: {count} modules" for name, count in folders if count > house.FOLDER_LIMIT],
        "shared-classes": [f"{n}: {', '.join(where)}" for n, where in house.shared_class_names(modules).items()],
        "pronouns": [f"{n}: {line}" for n, lines in house.pronoun_docstrings(modules).items() for line in lines],
        "long-lines": [f"{n}: {c}" for n, c in house.long_lines(modules).items() for _ in range(c)],
        "circles": [" <-> ".join(names) for names in house.circles(house.imports(modules))],
        "impure": house.impurities(modules),
        "complex": [f"{each.complexity} {each.place}" for each in tangled],
        "parameters": [f"{each.parameters} {each.place}" for each in greedy],
    }


def summary(found: Mapping[str, list[str]]) -> str:
    """Format a line per figure, with the number of things it is counted over."""
    modules = house.read_tree(ROOT / "sparkdash")
    text = "\n".join(module.text for module in modules.values())
    folders = house.modules_per_folder(modules)
    largest = max(folders, key=lambda name: folders[name])
    functions = len(house.functions(modules))
    classes = len({name for module in modules.values() for name in module.public_classes()})
    docstrings = sum(len(list(module.docstrings())) for module in modules.values())
    pure = sum(module.is_pure for module in modules.values())
    rows = [
        ("modules", f"{len(modules)}, {pure} of them marked pure; imports against the mark: {len(found['impure'])}"),
        (
            "modules per folder",
            f"at most {folders[largest]} ({largest}); folders over 25: {len(found['folders-over-25'])}",
        ),
        ("class names in several files", f"{len(found['shared-classes'])} of {classes}"),
        ("docstrings that open with a pronoun", f"{len(found['pronouns'])} of {docstrings}"),
        ("lines over 120 characters", f"{len(found['long-lines'])} of {text.count(chr(10))}"),
        ("circles of imports, types included", str(len(found["circles"]))),
        (
            f"functions over complexity {house.COMPLEX}",
            f"{len(found['complex'])} of {functions} ({len(found['complex']) / functions:.1%})",
        ),
        (f"functions with more than {house.PARAMETERS} parameters", str(len(found["parameters"]))),
    ]
    return "\n".join(f"{name:<38}{value}" for name, value in rows)


def main() -> None:
    """Print the figures, or the places behind one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = measure()
    parser.add_argument("--list", choices=found, metavar="NAME", help=f"places behind one figure: {', '.join(found)}")
    wanted = parser.parse_args().list
    sys.stdout.write("\n".join(found[wanted]) + "\n" if wanted else summary(found) + "\n")


if __name__ == "__main__":
    main()
