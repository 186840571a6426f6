"""How easy the source tree is to read, in figures: `make metrics`.

Prints lines, files and functions by size, Protocols, modules per folder, class names defined more than once, docstrings that open with a pronoun, circles of imports
and long parameter lists. `--list NAME` shows the places behind one figure.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contract"))
import house  # noqa: E402 - tests/ is no package


def measure() -> dict[str, list[str]]:
    modules = house.read_tree(ROOT / "sparkdash")
    functions = house.functions(modules)
    greedy = sorted((f for f in functions if f.parameters > house.PARAMETERS), key=lambda f: -f.parameters)
    folders = sorted(house.modules_per_folder(modules).items(), key=lambda item: -item[1])
    small = [(m.lines, n) for n, m in modules.items() if m.lines < house.SMALL and not is_package(n, modules)]
    return {
        "small-files": [f"{lines} {name}" for lines, name in sorted(small)],
        "large-files": [f"{m.lines} {n}" for n, m in modules.items() if m.lines > house.FILE_LIMIT],
        "long-functions": [f"{f.lines} {f.place}" for f in functions if f.lines > house.FUNCTION_LIMIT],
        "protocols": house.protocols(modules),
        "engine-kinds": house.engine_kind_questions(modules),
        "folders-over-25": [f"{name}: {count} modules" for name, count in folders if count > house.FOLDER_LIMIT],
        "shared-classes": [f"{n}: {', '.join(where)}" for n, where in house.shared_class_names(modules).items()],
        "pronouns": [f"{n}: {line}" for n, lines in house.pronoun_docstrings(modules).items() for line in lines],
        "circles": [" <-> ".join(names) for names in house.circles(house.imports(modules))],
        "impure": house.impurities(modules),
        "parameters": [f"{each.parameters} {each.place}" for each in greedy],
    }


def is_package(name: str, modules: Mapping[str, house.Module]) -> bool:
    return any(other.startswith(f"{name}.") for other in modules)


def sizes(modules: Mapping[str, house.Module], found: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """How much there is to hold in one's head."""
    lines = sorted(module.lines for module in modules.values())
    code, head = (sum(getattr(m, which) for m in modules.values()) for which in ("code_lines", "head_lines"))
    lengths = sorted(function.lines for function in house.functions(modules))
    usual, most = lengths[len(lengths) // 2], lengths[len(lengths) * 95 // 100]
    tests = sum(file.read_text().count("\n") for file in (ROOT / "tests").rglob("*.py"))
    folders = sum(is_package(name, modules) for name in modules)
    return [
        ("lines of Python (code alone)", f"{sum(lines):,} ({code:,})"),
        ("files / folders", f"{len(lines)} / {folders}"),
        ("lines of a file", f"median {lines[len(lines) // 2]}, largest {lines[-1]}"),
        (f"files under {house.SMALL} lines, no __init__", str(len(found["small-files"]))),
        ("lines in file heads", f"{head / sum(lines):.1%}"),
        ("lines of a function", f"median {usual}, 95 % up to {most}, longest {lengths[-1]}"),
        ("Protocols", str(len(found["protocols"]))),
        ("uses of EngineKind outside engines", str(len(found["engine-kinds"]))),
        ("lines of tests", f"{tests:,}"),
    ]


def summary(found: Mapping[str, list[str]]) -> str:
    """Format a line per figure, with the number of things it is counted over."""
    modules = house.read_tree(ROOT / "sparkdash")
    folders = house.modules_per_folder(modules)
    largest = max(folders, key=lambda name: folders[name])
    classes = len({name for module in modules.values() for name in module.public_classes()})
    docstrings = sum(len(list(module.docstrings())) for module in modules.values())
    pure = sum(module.is_pure for module in modules.values())
    rows = [
        *sizes(modules, found),
        ("modules", f"{len(modules)}, {pure} of them marked pure; imports against the mark: {len(found['impure'])}"),
        (
            "modules per folder",
            f"at most {folders[largest]} ({largest}); folders over 25: {len(found['folders-over-25'])}",
        ),
        ("class names in several files", f"{len(found['shared-classes'])} of {classes}"),
        ("docstrings that open with a pronoun", f"{len(found['pronouns'])} of {docstrings}"),
        ("circles of imports, types included", str(len(found["circles"]))),
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
