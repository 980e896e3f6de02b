#!/usr/bin/env python3
"""Measures circles among a crate's files: files that use each other, directly or through others.

usage: circles.py               compares every folder in LIMITS, fails when a circle is larger, and
                                when a file uses one on a floor above its own (FLOORS)
       circles.py FOLDER        shows the circles of a folder and what each file in them uses

A file uses another one when a `use` line or a path in its code leads to something that is defined
there. Re-exports are followed to the defining file. Neither tests nor `mod` lines count, and a
`pub use` of a module's own children counts only when the module itself uses the name. Calls of
methods and types that nobody names are not seen.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folder: how many files its largest circle may have; 0 is none at all. Only ever lowered.
LIMITS = {
    "crates/daemon/src": 0,
    "crates/engine/src": 0,
    "crates/bpf/src/verifier": 0,
}

# Folder: its floors. A file uses its own floor and those before it; files on no floor use all.
FLOORS = {
    "crates/daemon/src": ["model", "live", "control", "doors"],
}

TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/                                    # comments
  | b?r(?P<hashes>\#*)".*?"(?P=hashes)                      # raw strings
  | [bc]?"(?:\\.|[^"\\])*"                                  # strings
  | b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\])'       # characters
  | (?P<token>'\w+ | (?:r\#)?[A-Za-z_]\w* | \d\w* | :: | \S)
""", re.VERBOSE | re.DOTALL)
NAME = re.compile(r"(?:r#)?[A-Za-z_]\w*$")
ITEMS = {"fn", "struct", "enum", "trait", "type", "const", "static", "union"}
CLOSES = {"{": "}", "(": ")", "[": "]"}
DEPTH_MAX = 32


class Module:
    """A module: its file, what it defines and imports, and the paths in its code."""

    def __init__(self, file, folder, parent):
        self.file, self.folder, self.parent = file, folder, parent
        self.root = parent.root if parent else self
        self.children, self.items, self.imports = {}, {}, {}
        self.globs, self.uses, self.reexports, self.paths = [], [], {}, []
        self.words = set()


def tokens_of(text):
    return [found["token"] for found in TOKEN.finditer(text) if found["token"]]


def end_of_group(tokens, at):
    """The place behind the bracket that closes the one at `at`."""
    opens, closes, depth = tokens[at], CLOSES[tokens[at]], 0
    while at < len(tokens):
        depth += (tokens[at] == opens) - (tokens[at] == closes)
        at += 1
        if depth == 0:
            break
    return at


def end_of_item(tokens, at):
    """The place behind what an attribute at `at` belongs to: an item, a field or a statement."""
    while at < len(tokens) and tokens[at] == "#":
        at = end_of_group(tokens, at + 1)
    is_use = "use" in tokens[at:at + 5]
    is_item = any(token in ITEMS | {"mod", "impl", "macro_rules"} for token in tokens[at:at + 5])
    while at < len(tokens):
        if tokens[at] == ";" or (tokens[at] == "," and not is_item and not is_use):
            return at + 1
        if tokens[at] in "})]":
            return at
        if tokens[at] in CLOSES:
            is_body = tokens[at] == "{" and not is_use
            at = end_of_group(tokens, at)
            if is_body:
                return at
        else:
            at += 1
    return at


def without_tests(tokens):
    """The tokens without what is compiled for tests only."""
    kept, at = [], 0
    while at < len(tokens):
        if tokens[at] == "#" and tokens[at + 1:at + 2] == ["["]:
            end = end_of_group(tokens, at + 1)
            attribute = tokens[at + 2:end - 1]
            if attribute[:1] == ["cfg"] and "test" in attribute and "not" not in attribute:
                at = end_of_item(tokens, end)
                continue
        kept.append(tokens[at])
        at += 1
    return kept


def use_tree(tokens, at, prefix, leaves):
    """Reads a `use` tree at `at` into `(path, name)`, name `*` for a glob; returns its end."""
    path = list(prefix)
    while at < len(tokens):
        token = tokens[at]
        if token == "{":
            at += 1
            while tokens[at] != "}":
                at = use_tree(tokens, at, path, leaves)
                at += tokens[at] == ","
            return at + 1
        if token == "*":
            leaves.append((path, "*"))
            return at + 1
        if token != "::":
            path.append(token)
        at += 1
        if tokens[at] != "::" and token != "::":
            if path[-1] == "self" and len(path) > 1:
                path.pop()
            name = path[-1]
            if tokens[at] == "as":
                name, at = tokens[at + 1], at + 2
            leaves.append((path, name))
            return at
    return at


def read_use(module, tokens, at, is_public):
    leaves = []
    at = use_tree(tokens, at, [], leaves)
    for path, name in leaves:
        if name == "*":
            module.globs.append(path)
            continue
        module.imports[name] = path
        (module.reexports.__setitem__(name, path) if is_public else module.uses.append(path))
    return at


def read_path(module, tokens, at):
    """Notes the path that begins at `at`; returns its end."""
    path = [tokens[at]]
    at += 1
    while tokens[at:at + 1] == ["::"] and NAME.match(tokens[at + 1]):
        path.append(tokens[at + 1])
        at += 2
    module.words.add(path[0])
    if len(path) > 1:
        module.paths.append(path)
    return at


def read_module(module, tokens):
    """Fills a module from the tokens of its body."""
    at, depth = 0, 0
    while at < len(tokens):
        token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
        if token == "pub":
            at = end_of_group(tokens, at + 1) if following == "(" else at + 1
            if tokens[at] == "use":
                at = read_use(module, tokens, at + 1, True)
        elif token == "use" and following != "<":
            at = read_use(module, tokens, at + 1, False)
        elif token == "mod" and depth == 0 and NAME.match(following):
            at = read_child(module, tokens, at)
        elif token == "macro_rules" and following == "!":
            exported = "macro_export" in tokens[max(at - 2, 0):at]
            (module.root if exported else module).items[tokens[at + 2]] = module.file
            at += 3
        elif token == "::":
            at += 1
            while NAME.match(tokens[at]) and tokens[at + 1] == "::":
                at += 2
            at += 1
        elif token in ITEMS and depth == 0 and NAME.match(following) and following not in ITEMS:
            module.items[following] = module.file
            at += 2
        elif NAME.match(token):
            at = read_path(module, tokens, at)
        else:
            depth += (token in CLOSES) - (token in CLOSES.values())
            at += 1


def read_child(module, tokens, at):
    name = tokens[at + 1]
    if tokens[at + 2] == "{":
        end = end_of_group(tokens, at + 2)
        child = Module(module.file, module.folder / name, module)
        module.children[name] = child
        read_module(child, tokens[at + 3:end - 1])
        return end
    for file, folder in ((module.folder / f"{name}.rs", module.folder / name),
                         (module.folder / name / "mod.rs", module.folder / name)):
        if file.exists():
            module.children[name] = read_file(file, folder, module)
    return at + 3


def read_file(file, folder, parent):
    module = Module(file, folder, parent)
    read_module(module, without_tests(tokens_of(file.read_text())))
    return module


def resolve(module, path, depth=0):
    """The file that defines what a path names, or the module that it ends in, or None."""
    if depth > DEPTH_MAX:
        return None
    first, at = path[0], 1
    if first == "crate":
        here = module.root
    elif first == "self":
        here = module
    elif first == "super":
        here = module.parent
    else:
        here, at = module, 0
    while here and at < len(path):
        name = path[at]
        if name == "super":
            here = here.parent
        elif name in here.children and (at + 1 < len(path) or name not in here.items):
            here = here.children[name]
        elif name in here.items:
            return here.items[name]
        elif name in here.imports and here.imports[name] != path[at:]:
            return resolve(here, here.imports[name] + path[at + 1:], depth + 1)
        else:
            found = through_globs(here, path[at:], depth)
            # An item that a macro defines is not seen; it is the module's own.
            return found if found or at == 0 else here.file
        at += 1
    return here


def through_globs(module, path, depth):
    for glob in module.globs:
        target = resolve(module, glob, depth + 1)
        if isinstance(target, Module) and target is not module and \
                any(path[0] in names for names in (target.items, target.imports, target.children)):
            return resolve(target, ["self", *path], depth + 1)
    return None


def all_modules(module):
    yield module
    for child in module.children.values():
        yield from all_modules(child)


def uses_of(module):
    """The pairs of a path and the file that it leads to."""
    paths = list(module.uses)
    for name, path in module.reexports.items():
        file = resolve(module, path)
        if isinstance(file, Path) and module.folder not in file.parents or name in module.words:
            paths.append(path)
    paths += module.paths
    paths += [[word] for word in module.words if module.globs and through_globs(module, [word], 0)]
    for path in paths:
        file = resolve(module, path)
        if isinstance(file, Path) and file != module.file:
            yield path, file


def graph_of(folder):
    """What each file below a folder uses of the others: file to file to the paths."""
    roots = (source / name for source in (folder, *folder.parents)
             for name in ("lib.rs", "main.rs"))
    root = next((root for root in roots if root.exists()), None)
    if root is None or not folder.is_dir():
        sys.exit(f"{folder}: this is no folder of a crate's sources\n{__doc__}")
    source = root.parent
    graph = {}
    for module in all_modules(read_file(root, source, None)):
        if folder not in module.file.parents and module.file.with_suffix("") != folder:
            continue
        used = graph.setdefault(module.file, {})
        for path, file in uses_of(module):
            used.setdefault(file, set()).add("::".join(path))
    for used in graph.values():
        for file in [file for file in used if file not in graph]:
            del used[file]
    return graph


def reachable(graph, start):
    seen, todo = set(), [start]
    while todo:
        for file in graph[todo.pop()]:
            if file not in seen:
                seen.add(file)
                todo.append(file)
    return seen


def circles_of(graph):
    """The strongly connected sets of two files and more, largest first."""
    reach = {file: reachable(graph, file) for file in graph}
    circles, seen = [], set()
    for file in sorted(graph):
        if file not in seen and file in reach[file]:
            circles.append(sorted(other for other in reach[file] if file in reach[other]))
            seen.update(circles[-1])
    return sorted(circles, key=len, reverse=True)


def climbs_of(graph, folder, floors):
    """The uses that lead to a floor above: file, other file, paths."""
    def floor(file):
        first = file.relative_to(folder).parts[0].removesuffix(".rs")
        return floors.index(first) if first in floors else len(floors)
    return [(file, other, paths) for file in sorted(graph) for other, paths in graph[file].items()
            if floor(other) > floor(file)]


def show(folder):
    graph = graph_of(folder)
    for circle in circles_of(graph):
        print(f"{len(circle)} of {len(graph)} files use each other:")
        for file in circle:
            print(f"  {file.relative_to(folder.parent)}")
            for other, paths in sorted(graph[file].items()):
                if other in circle:
                    print(f"    {other.relative_to(folder.parent)}: {', '.join(sorted(paths))}")


def check():
    failed = False
    for name, limit in LIMITS.items():
        folder = ROOT / name
        graph = graph_of(folder)
        circles = circles_of(graph)
        largest = len(circles[0]) if circles else 0
        sizes = ", ".join(str(len(circle)) for circle in circles) or "none"
        print(f"{name}: {len(graph)} files, circles: {sizes} (at most {limit})")
        for file, other, paths in climbs_of(graph, folder, FLOORS.get(name, [])):
            failed = True
            print(f"{file.relative_to(ROOT)} uses {other.relative_to(ROOT)}, which is on a floor "
                  f"above: {', '.join(sorted(paths))}", file=sys.stderr)
        if largest > limit:
            failed = True
            print(f"{name}: {largest} files use each other, {limit} may; "
                  f"`scripts/circles.py {name}` shows them", file=sys.stderr)
        elif largest < limit:
            failed = True
            print(f"{name}: the largest circle is {largest} files; lower the limit of {limit} in "
                  f"{sys.argv[0]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(show(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else check())
