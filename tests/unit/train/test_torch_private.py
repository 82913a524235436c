"""Torch's private API stands in one module, with what happens on a torch that does not have it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import legato
from legato.core.errors import ProgramError
from legato.train import torch_private

SOURCE = Path(legato.__file__).parent
# Private names of others than torch, in modules that import torch or train beside it.
NOT_TORCH = {
    "_asdict": "named tuples, a documented method",
    "_callback": "an attribute that a program's class has",
    "_create_all_weights": "Keras",
    "_generator": "Keras",
    "_get_batches_of_transformed_samples": "Keras",
    "_getframe": "sys, documented",
    "_learning_rate": "Keras",
    "_maybe_init": "Keras",
    "_member_map_": "enum",
    "_random_generator": "Keras",
    "_replace": "named tuples, a documented method",
    "_rng_type": "Keras",
    "_run_exitfuncs": "atexit",
}


TORCHS = {
    name
    for thing in (
        torch,
        nn.Module(),
        torch.zeros(1),
        torch.optim.SGD([torch.zeros(1)]),
        DataLoader(range(2)),
        iter(DataLoader(range(2))),
        torch.distributed.ProcessGroupGloo,
    )
    for name in dir(thing)
    if name.startswith("_") and not name.startswith("__")
}
"""Private names that things of torch have."""


def _defined(trees: list[ast.Module]) -> set[str]:
    """Return every name that Legato itself defines."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def _private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module takes from elsewhere: attributes, imports, and names for `getattr`."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [] if ast.unparse(node.value) in ("self", "cls", "super()") else [node.attr]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            names = [str(part.value) for part in node.args[1:2] if isinstance(part, ast.Constant)]
        yield from (name for name in names if name.startswith("_") and not name.startswith("__"))


def _names_of_distributed(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed"):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("torch.distributed"):
        return [node.attr]
    return []


def test_no_other_module_uses_private_api_of_torch() -> None:
    files = [file for room in ("train", "compat") for file in (SOURCE / room).rglob("*.py")]
    trees = {file: ast.parse(file.read_text()) for file in files}
    own = _defined([tree for file, tree in trees.items() if file.name != "torch_private.py"])
    foreign = {
        (str(file.relative_to(SOURCE)), name)
        for file, tree in trees.items()
        for name in _private_names(tree)
        if (name in TORCHS or name not in own) and name not in NOT_TORCH
    }
    assert {file for file, _ in foreign} == {"train/torch_private.py"}, sorted(foreign)
    # Torch gives the parts of process groups no underscore, and neither documents nor types them.
    of_groups = {
        (str(file.relative_to(SOURCE)), name)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        for name in _names_of_distributed(node)
    }
    documented = {("train/process/birth.py", "TCPStore")}
    documented |= {("train/process/torch_probe.py", f"is_{name}available") for name in ("", "gloo_", "nccl_")}
    assert of_groups == documented


def test_a_torch_without_a_needed_part_is_refused_with_the_versions_that_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.distributed, "PrefixStore")
    with pytest.raises(ProgramError, match=r"torch .* has no torch\.distributed\.PrefixStore.*2\.8"):
        torch_private.prefixed("devices", None)


def test_a_torch_that_copies_no_lists_of_tensors_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values = [torch.randn(5), torch.randn(2, 3)]

    def sum_up() -> list[torch.Tensor]:
        sums = [torch.full_like(value, 0.1) for value in values]
        torch_private.add_each(sums, values)
        copies = [torch.empty_like(value) for value in values]
        torch_private.copy_each(copies, sums)
        return copies

    whole = sum_up()
    try:
        with monkeypatch.context() as patch:
            patch.delattr(torch, "_foreach_copy_")
            patch.delattr(torch, "_foreach_add_")
            importlib.reload(torch_private)
            single = sum_up()
    finally:
        importlib.reload(torch_private)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(whole, single, strict=True))


def test_a_torch_without_what_is_only_looked_at_trains_on() -> None:
    class Plain:
        pass

    model = nn.BatchNorm1d(2)
    assert torch_private.is_persistent(model, "running_mean")
    model.register_buffer("cache", torch.zeros(1), persistent=False)
    assert not torch_private.is_persistent(model, "cache")
    assert torch_private.schedulers_in(Plain()) == ()
    assert torch_private.is_loading(Plain())
    assert torch_private.num_changes(torch.zeros(1).add_(1)) == 1
