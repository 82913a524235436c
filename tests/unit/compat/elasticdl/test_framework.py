"""ElasticDL's programs as a framework: how command lines are read."""

from __future__ import annotations

import pytest

from legato.compat.elasticdl.framework import ElasticPrograms
from legato.core.errors import BadField
from legato.core.frameworks import Framework, Wanted

FILES = ("zoo/__init__.py", "zoo/mnist/mnist_pytorch.py", "zoo/main/__main__.py", "train.py")


def ask(*words: str, files: tuple[str, ...] | None = FILES) -> Wanted:
    return Wanted(words=words, files=files, distributed="elastic", max_nodes=3, user="ann", name="run")


def test_a_module_is_run_with_the_guest_that_hands_out_its_tasks() -> None:
    framework: Framework = ElasticPrograms()
    words = ("--num_minibatches_per_task=2", "python", "-m", "zoo.mnist.mnist_pytorch", "--lr", "1")
    prepared = framework.prepare(ask(*words))
    assert prepared.program == ("-m", "zoo.mnist.mnist_pytorch", "--lr", "1")
    launcher = prepared.launcher
    assert launcher is not None
    assert (launcher.script, launcher.preloads) == ("zoo/mnist/mnist_pytorch.py", True)
    assert launcher.environment == {"LEGATO_ELASTICDL_MINIBATCHES_PER_TASK": "2"}
    assert launcher.guest is not None
    assert launcher.most_workers == 3
    assert launcher.guest.options == {"num_workers": "3", "num_minibatches_per_task": "2"}


def test_gradients_are_added_if_the_command_says_so() -> None:
    prepared = ElasticPrograms().prepare(ask("--num_minibatches_per_task=2", "--add_gradients", "python", "train.py"))
    assert prepared.program == ("train.py",) and prepared.launcher is not None
    assert prepared.launcher.environment == {
        "LEGATO_ELASTICDL_MINIBATCHES_PER_TASK": "2",
        "LEGATO_ELASTICDL_SUM": "1",
    }


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (("train.py", "--x"), "train.py"),
        (("python3", "./train.py"), "train.py"),
        (("python3.11", "-m", "zoo.main"), "zoo/main/__main__.py"),
        (("-m", "torchvision"), None),
        (("--num_minibatches_per_task", "4", "/data/train.py"), "/data/train.py"),
    ],
)
def test_where_a_program_lies(words: tuple[str, ...], script: str | None) -> None:
    launcher = ElasticPrograms().prepare(ask(*words)).launcher
    assert launcher is not None
    assert launcher.script == script


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("python",), "names no program"),
        (("-m",), "names no program"),
        (("-c", "print()"), "names no program"),
        (("-m", "zoo.mnist.mnist"), "The module 'zoo/mnist/mnist.py' is not in the code"),
        (("mnist_pytorch.py",), "Did you mean 'zoo/mnist/mnist_pytorch.py'"),
        (("-m", "zoo/mnist.py"), "not a name of a module"),
        (("--num_minibatches_per_task=0", "train.py"), "at least 1"),
        (("--num_minibatches_per_task",), "at least 1"),
    ],
)
def test_what_cannot_be_run_is_reported(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(BadField, match=told):
        ElasticPrograms().prepare(ask(*words))
