"""The architecture's countable rules: sizes, documentation, layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for package in ("blockfs", "syncer") for path in (PROJECT / package).rglob("*.py"))
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
MIN_DOCUMENTED = 0.9
MAX_FOLDER_MODULES = 16


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring: documentation is not length."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = {str(path): count for path in MODULES if (count := len(path.read_text().splitlines())) > MAX_MODULE_LINES}
    assert not long


def test_no_folder_has_more_modules_than_a_reader_can_look_over() -> None:
    """Breaks when a module is put beside sixteen others: group them by what they are for."""
    folders = Counter(str(path.parent.relative_to(PROJECT)) for path in MODULES if path.stem != "__init__")
    large = {name: count for name, count in folders.items() if count > MAX_FOLDER_MODULES}
    assert not large


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{path.relative_to(PROJECT)}:{function.lineno} {function.name}: {code_lines(function)} lines"
        for path in MODULES
        for function in functions(ast.parse(path.read_text()))
        if code_lines(function) > MAX_FUNCTION_LINES
    ]
    assert not long


def test_every_module_is_documented() -> None:
    assert not [str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]


def test_public_functions_are_documented() -> None:
    public = [
        (path, function)
        for path in MODULES
        for function in functions(ast.parse(path.read_text()))
        if not function.name.startswith("_")
    ]
    bare = [
        f"{path.relative_to(PROJECT)}:{function.lineno} {function.name}"
        for path, function in public
        if not ast.get_docstring(function)
    ]
    assert len(bare) <= len(public) * (1 - MIN_DOCUMENTED), "\n".join(bare)


BYTES = {
    "path",
    "target",
    "obstacle",
    "source",
    "src",
    "dst",
    "root",
    "folder",
    "mountpoint",
    "place",
    "inside",
    "child",
}
"""Names under which the code keeps paths, which are bytes; in the engine and the tree also `name`."""


def test_no_message_shows_bytes_as_a_program_has_them() -> None:
    """`b'…'` says nothing to a person: `shown` does."""
    for path in MODULES:
        of_bytes = BYTES | ({"name", "new_name"} if {"engine", "tree"} & set(path.parts[-3:-1]) else set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
                told = re.findall(r"[a-z_]+", ast.unparse(node.value).partition("[")[0])
                assert not told[-1:] or told[-1] not in of_bytes, f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_nothing_is_called_a_leftover() -> None:
    banned = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert not [str(path) for path in MODULES if path.stem in banned]


def imports_of_tests(source: str) -> set[str]:
    """Modules of tests that a module of tests imports, in whatever form."""
    found: set[str] = set()
    if not re.search(r"\bimport\b[^\n]*(\([^)]*)?\btest_|\b(from|import) tests\.[\w.]*\btest_", source):
        return found  # most need no parsing
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module or ''}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("tests.") and ".test_" in name}


def test_no_test_imports_another_test() -> None:
    """What two tests need is in tests/kit, or in a module beside them: a test may be renamed or taken out alone."""
    forms = "import tests.a.test_b\nfrom tests.a.test_b import c\nfrom tests.a import (\n test_d\n)"
    assert imports_of_tests(forms) == {"tests.a.test_b", "tests.a.test_b.c", "tests.a.test_d"}
    paths = (PROJECT / "tests").rglob("*.py")
    borrowed = {
        str(path.relative_to(PROJECT)): found for path in paths if (found := imports_of_tests(path.read_text()))
    }
    assert not borrowed


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", directory / "setup.cfg", "--no-cache"],
        cwd=directory,
        env={"PYTHONPATH": str(directory), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


VIOLATIONS = {
    "blockfs/blocks/ids.py": "syncer.errors",  # blockfs knows no syncer
    "blockfs/blocks/hashing.py": "os",  # a pure module does no I/O
    "blockfs/tree/store.py": "blockfs.engine.content.files",  # layers point down
    "blockfs/engine/content/files.py": "blockfs.control.client",  # siblings don't meet
    "blockfs/engine/names/namespace.py": "pyfuse3",  # the engine is free of FUSE
    "blockfs/fuse/fairness.py": "trio",  # the rules of requests are free of it
    "blockfs/fuse/kernel/decode.py": "os",  # the protocol is pure
    "syncer/core/planner/merge.py": "time",  # the planner is pure
    "syncer/local/folder/root.py": "blockfs.tree.store",  # syncer enters by the public doors
    "syncer/server/catalogue/objects.py": "syncer.server.calls.reads",  # a transaction knows no HTTP
    "syncer/engine/cycle.py": "lmdb",  # databases belong to the stores
    "syncer/remote/repository/contents/packing.py": "syncer.remote.repository.client",  # a part knows no client
    "syncer/remote/repository/maintenance/marking.py": "syncer.remote.repository.maintenance.run",  # nor a mark its run
    "syncer/remote/stores/directory.py": "syncer.remote.stores.retrying",  # a store does each thing once
    "syncer/ui/views/roots.py": "time",  # what a page shows is decided without looking
    "syncer/ui/pages/roots.py": "syncer.state.statedb",  # and it changes nothing itself
}


def test_each_deliberate_violation_of_the_layers_is_caught(tmp_path: Path) -> None:
    for package in ("blockfs", "syncer"):
        for source in (PROJECT / package).rglob("*.py"):
            copy = tmp_path / source.relative_to(PROJECT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    (tmp_path / "setup.cfg").write_bytes((PROJECT / "setup.cfg").read_bytes())
    for module, imported in VIOLATIONS.items():
        target = tmp_path / module
        target.write_text(f"{target.read_text()}\nimport {imported}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    told = " ".join(result.stdout.split())  # long lines are wrapped
    for module, imported in VIOLATIONS.items():
        importer = module.removesuffix(".py").replace("/", ".")
        assert f"{importer} -> {imported} (l." in told


def test_blocks_load_neither_fuse_nor_trio() -> None:
    """A host without FUSE can sync: breaks when the block directory grows a dependency on the mount's libraries."""
    program = "import blockfs.blocks, blockfs.blocks.directory, sys; print({'pyfuse3', 'trio'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
