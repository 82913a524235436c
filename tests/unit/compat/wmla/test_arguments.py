"""The argument string of a submission: splitting, reading, and errors. No string makes the reader crash."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from tests.tiers import examples

from legato.compat.wmla.arguments import Submission, hide_secrets, read_arguments, split_words
from legato.compat.wmla.options import CONNECTION, FLAGS, MEANINGLESS, OPTIONS, REFUSED
from legato.core.errors import UsageError

N03 = """--exec-start edtPyTorch --ig wml-ig-edt   --cs-datastore-meta type=fs,data_path=pytorch-mnist
          --model-dir pytorch_edt --edt-options maxWorkers=2
          --model-main pytorch_mnist_EDT.py --epochs 15 """
NCPD = (
    "--exec-start edtPyTorch --cs-datastore-meta type=fs --numWorker 2 --model-main elastic-main.py "
    "--model-dir resnet-wmla"
)
SELF_TEST = (
    "--exec-start disttensorflow --numWorker 3 --workerDeviceType cpu --model-main main.py --model-dir ../tf2x_mnist "
    "-- --epochs 10 --no-cuda true"
)


def read(text: str) -> Submission:
    return read_arguments("--exec-start edtPyTorch " + text)


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", []),
        (" \t\r\n\f\v ", []),
        ("a  b\n\nc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("a'b c'd", ["ab cd"]),
        ("''", [""]),
        ('--d=""', ["--d="]),
        (r"'a\b'", [r"a\b"]),
        (r'"a\b\"c\\"', ['a\\b"c\\']),
        (r"a\ b it\'s", ["a b", "it's"]),
        ("a \\\n b", ["a", "b"]),
        ("a\\\r\nb", ["ab"]),
        ("a\\", ["a\\"]),
        ("$HOME `id` $(id) *;|&<>#~ {a,b}", ["$HOME", "`id`", "$(id)", "*;|&<>#~", "{a,b}"]),
        ("a\u00a0b", ["a\u00a0b"]),
    ],
)
def test_words(text: str, want: list[str]) -> None:
    assert split_words(text) == want


@pytest.mark.parametrize("text", ["'", '"', "it's", 'a "b', '"a\\"', "a\0b", "x" * 70_000])
def test_a_string_that_cannot_be_split_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match=r"\.$|Leave it out"):
        split_words(text)


@given(
    some.lists(some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=8)
)
def test_quoted_words_are_split_unchanged(words: list[str]) -> None:
    doubled = ['"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words]
    assert split_words("  ".join(doubled)) == words
    assert split_words("\n".join(f"'{word.replace(chr(39), '')}'" for word in words)) == [
        word.replace("'", "") for word in words
    ]


# ---------------------------------------------------------------- options


def test_the_string_of_the_tutorial() -> None:
    found = read_arguments(N03)
    assert (found.framework.name, found.main, found.model_directory) == (
        "edtPyTorch",
        "pytorch_mnist_EDT.py",
        "pytorch_edt",
    )
    assert (found.group, found.num_workers, found.data_path) == ("wml-ig-edt", 2, "pytorch-mnist")
    assert found.arguments == ("--epochs", "15")
    assert found.ignored == ()


def test_the_string_of_later_releases() -> None:
    found = read_arguments(NCPD)
    assert (found.num_workers, found.group, found.data_path, found.arguments) == (2, None, None, ())


def test_the_string_of_the_self_test() -> None:
    found = read_arguments(SELF_TEST)
    assert found.framework.shape == "gang"
    assert (found.num_workers, found.model_directory) == (3, "tf2x_mnist")
    assert found.arguments == ("--epochs", "10", "--no-cuda", "true")
    assert found.ignored == ("--workerDeviceType",)


def test_options_that_are_not_known_go_to_the_program_in_their_order() -> None:
    found = read("-v --epochs 3 --model-main a.py pos --lr=0.1 --numWorker 4 --flag")
    assert found.arguments == ("-v", "--epochs", "3", "pos", "--lr=0.1", "--flag")
    assert (found.main, found.num_workers) == ("a.py", 4)


def test_all_words_after_two_dashes_go_to_the_program() -> None:
    found = read("--numWorker 2 -- --numWorker 9 -- --user-cmd 'a b'")
    assert found.arguments == ("--numWorker", "9", "--", "--user-cmd", "a b")
    assert found.num_workers == 2


def test_the_last_value_of_an_option_is_used_and_variables_add_up() -> None:
    found = read("--numWorker 2 --msd-env A=1 --numWorker=3 --msd-env B=x=y --msd-env A=2 --msd-env 'C=a b'")
    assert found.num_workers == 3
    assert found.environment == {"A": "2", "B": "x=y", "C": "a b"}


@pytest.mark.parametrize(
    ("framework", "said", "want"),
    [
        ("edtPyTorch", "", 1),
        ("edtPyTorch", "--numWorker 3 --workerDeviceNum 2", 6),
        ("edtPyTorch", "--workerDeviceNum 2", 2),
        ("edtPyTorch", "--numWorker 3 --edt-options maxWorkers=5", 5),
        ("edtPyTorch", "--edt-options maxWorkers=2 --gpuPerWorker 2", 4),
        ("distPyTorch", "--numWorker 2 --workerDeviceNum 2", 4),
        ("PyTorch", "--numWorker 2 --workerDeviceNum 2", 1),
    ],
)
def test_how_many_workers(framework: str, said: str, want: int) -> None:
    assert read_arguments(f"--exec-start {framework} {said}").num_workers == want


def test_limits_of_a_worker_are_read() -> None:
    found = read("--workerMemoryLimit 8G --workerCPULimit 500m x")
    assert (found.memory_bytes, found.num_cpus, found.ignored) == (8 * 2**30, 0.5, ())
    assert (read("x").memory_bytes, read("x").num_cpus) == (None, None)
    with pytest.raises(UsageError, match="Cannot read --workerMemoryLimit 'much'"):
        read("--workerMemoryLimit much x")


def test_options_without_effect_are_ignored_and_reported() -> None:
    found = read("--workerMemory 4G --exclusive --msd-label a=b --workerMemory 8G --edt-options other=1,maxWorkers=2 x")
    assert found.ignored == ("--workerMemory", "--exclusive", "--msd-label", "--edt-options other")
    assert (found.num_workers, found.arguments) == (2, ("x",))
    assert read("--exclusive false x").arguments == ("x",)
    both = read("--ig a --consumer b --gpuPerWorker 3 --workerDeviceNum 2")
    assert (both.group, both.num_devices, both.ignored) == ("a", 2, ("--consumer", "--gpuPerWorker"))
    assert read("--ig a --consumer a --gpuPerWorker 2 --workerDeviceNum 2").ignored == ()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("--numWoker 4", ("--numWoker", "--numWorker")),
        ("--numworker=4", ("--numworker", "--numWorker")),
        ("-numWorker 4", ("-numWorker", "--numWorker")),
        ("--num-workers 4", ("--num-workers", "--numWorker")),
        ("--wrokerDeviceNum 4", ("--wrokerDeviceNum", "--workerDeviceNum")),
        ("--model_main a.py", ("--model_main", "--model-main")),
        ("--msd-evn A=b", ("--msd-evn", "--msd-env")),
        ("--cs-datastore type=fs", ("--cs-datastore", "--cs-datastore-meta")),
    ],
)
def test_near_misses_are_passed_to_the_program_and_reported(text: str, want: tuple[str, str]) -> None:
    found = read(f"{text} {text}")
    assert found.near_misses == (want,)
    assert found.arguments == (*text.split(), *text.split())
    assert read(f"-- {text}").near_misses == ()


def test_options_of_common_programs_are_not_near_misses() -> None:
    own = "-v --epochs --lr --batch-size --data-dir --train_dir --model_path --model-name --workers --no-cuda --seed"
    own += " --gpus --log-interval --save-model --test-batch-size --gamma --dry-run --arch --momentum --weight-decay"
    own += " numWoker"
    assert read(own).near_misses == ()
    # Everything that users send has a limit.
    assert len(read(" ".join(f"--numWorker{number}" for number in range(4000))).near_misses) <= 50


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("--model-main a.py", "no --exec-start"),
        ("--exec-start", "--exec-start has no value"),
        ("--exec-start edtPytorch", "Framework edtPytorch not found. Did you mean edtPyTorch?"),
        ("--exec-start caffe", "Framework caffe not found"),
        ("--exec-start PyTorch --numWorker --epochs", "--numWorker has no value"),
        ("--exec-start PyTorch --numWorker two", "Cannot read --numWorker two"),
        ("--exec-start PyTorch --numWorker 0", "at least 1"),
        ("--exec-start PyTorch --numWorker ²", "Cannot read --numWorker"),
        ("--exec-start edtPyTorch --numWorker 100001", "the maximum is 100000"),
        ("--exec-start PyTorch --edt-options maxWorkers=", "Cannot read maxWorkers"),
        ("--exec-start PyTorch --msd-priority -3", "Cannot read --msd-priority"),
        ("--exec-start PyTorch --msd-env AB", "NAME=VALUE"),
        ("--exec-start PyTorch --msd-env 1=2", "NAME=VALUE"),
        ("--exec-start PyTorch --msd-env LEGATO_WORKER=2", "reserves this name"),
        ("--exec-start PyTorch --cs-datastore-meta type=s3", "type 's3'"),
        ("--exec-start PyTorch --cs-datastore-meta type=fs,data_path=a/../../b", "points outside"),
        ("--exec-start PyTorch --model-dir ..", "Cannot read --model-dir"),
        ("--exec-start PyTorch --user-cmd -- ls", "--user-cmd is not supported. Name the main file"),
        ("--exec-start PyTorch --pbmodel-name x", "not supported"),
    ],
)
def test_unusable_arguments_are_reported(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        read_arguments(text)


# ---------------------------------------------------------------- secrets


def test_secrets_are_not_shown() -> None:
    text = "--exec-start PyTorch --msd-env KEY=hunter2  --msd-env=TOKEN=hunter2 --model-main 'a b.py' -- --password p"
    shown = hide_secrets(text)
    assert "hunter2" not in shown
    assert shown == ('--exec-start PyTorch --msd-env KEY=*** --msd-env=TOKEN=*** --model-main "a b.py" -- --password p')
    assert read_arguments(shown).main == "a b.py"
    elsewhere = (
        """--data-source '[{"secret_access_key": "hunter2"}]' --cs-rmq-meta amqp://me:hunter2@host --cs-url-meta u """
        "--cs-url-bearer x"
    )
    assert hide_secrets(elsewhere) == "--data-source *** --cs-rmq-meta *** --cs-url-meta *** --cs-url-bearer ***"
    assert hide_secrets(N03) == N03
    assert hide_secrets("--msd-env A='x") == ""


# ---------------------------------------------------------------- any string

NAMES = sorted(OPTIONS | MEANINGLESS | FLAGS | CONNECTION | set(REFUSED))
PIECES = some.one_of(
    some.sampled_from([*NAMES, "--", "--epochs", "edtPyTorch", "maxWorkers=2", "type=fs,data_path=a", "K=V"]),
    some.sampled_from([" ", "\n", "\t", "=", "'", '"', "\\", "\\\n", "$(id)", "`", ";", "\0", "-"]),
    some.integers(-3, 10**12).map(str),
    some.text(max_size=5),
)


@settings(max_examples=examples(100))
@example("--exec-start edtPyTorch --msd-env")
@given(some.lists(PIECES, max_size=20).map("".join) | some.lists(PIECES, max_size=20).map(" ".join) | some.text())
def test_any_string_is_read_or_refused(text: str) -> None:
    hide_secrets(text)
    try:
        found = read_arguments(text)
    except UsageError:
        return
    assert found.num_workers >= 1
    words = split_words(text)
    # The program's arguments are words of the string, in their order.
    remaining = iter(words)
    assert all(argument in remaining for argument in found.arguments)


def test_reading_loads_nothing_that_could_run_a_program() -> None:
    code = "import legato.compat.wmla.arguments, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"subprocess", "torch", "shlex", "legato.control", "legato.server"} & set(loaded)


def test_an_option_with_the_dash_of_a_printed_document_is_that_option() -> None:
    found = read(
        "\u2013msd-env KEY=secret \u2013\u2013numWorker=2 \u2212model-main main.py \u2013epochs 3 -- \u2013numWorker 9"
    )
    assert (found.environment, found.num_workers, found.main) == ({"KEY": "secret"}, 2, "main.py")
    # Unknown options go to the program, and a notice asks whether the user meant another option.
    assert found.arguments == ("\u2013epochs", "3", "\u2013numWorker", "9")
    assert found.near_misses == (("\u2013epochs", "--epochs"),)
    assert "secret" not in hide_secrets("--exec-start PyTorch \u2013msd-env KEY=secret")


def test_only_a_number_that_was_named_is_one_that_the_user_asked_for() -> None:
    assert not read("").names_workers and not read("--workerDeviceNum 2").names_workers
    assert read("--numWorker 2").names_workers and read("--edt-options maxWorkers=2").names_workers
    assert not read_arguments("--exec-start PyTorch --numWorker 2").names_workers
