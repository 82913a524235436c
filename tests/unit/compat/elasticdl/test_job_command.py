"""``--job_command``: the forms that users write, forms that need a shell, and the same words as in Bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.compat.elasticdl.job_command import JobCommand, read_job_command, split_line
from legato.core.errors import UsageError

SEED = (
    "python -m model_zoo.mnist.mnist_pytorch --batch_size 64 --num_epochs 1 "
    "--training_data=/data/mnist_png/training --validation_data=/data/mnist_png/testing"
)
KNOWN = {"N": "7", "D": "a b"}


def test_the_command_of_the_tutorial() -> None:
    assert read_job_command(SEED) == JobCommand(tuple(SEED.split()[1:]))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("python3 train.py", JobCommand(("train.py",))),
        ("/usr/bin/python3.11 -u -W ignore train.py -u", JobCommand(("train.py", "-u"), left_out=("-u", "-W ignore"))),
        ("train.py --x", JobCommand(("train.py", "--x"))),
        ("cd zoo && python a.py", JobCommand(("a.py",), "zoo")),
        ("cd /a; cd b ;python a.py;", JobCommand(("a.py",), "/a/b")),
        ("export A=1 B='2 3'; C=4 python a.py", JobCommand(("a.py",), "", {"A": "1", "B": "2 3", "C": "4"})),
        ("\n  cd zoo\npython a.py x\\ \n", JobCommand(("a.py", "x "), "zoo")),
        ("set -o pipefail; python a.py", JobCommand(("a.py",), left_out=("set -o pipefail",))),
        ("python a.py 2>&1 | tee /log/a.txt", JobCommand(("a.py",), left_out=("2>&1 | tee /log/a.txt",))),
        ("python a.py > x.log 2>&1", JobCommand(("a.py",), left_out=("> x.log 2>&1",))),
        ("python a.py $N ${N}x \"$D\" '$N' \\$N", JobCommand(("a.py", "7", "7x", "a b", "$N", "$N"))),
        ("python a.py \\\n  --x 1 # why", JobCommand(("a.py", "--x", "1"))),
        ("python a.py --p '*.png;|&' \"it's\"", JobCommand(("a.py", "--p", "*.png;|&", "it's"))),
    ],
)
def test_forms_that_people_write(text: str, want: JobCommand) -> None:
    assert read_job_command(text, KNOWN) == want


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "The option --job_command is missing"),
        ("A=1", "--job_command is empty"),
        ("cd zoo &&", "--job_command is empty"),
        ("bash run.sh", "needs a shell"),
        ("pip install x && python a.py", "needs a shell"),
        ("python a.py && python b.py", "needs a shell"),
        ("python a.py || true", "needs a shell"),
        ("python a.py &", "needs a shell"),
        ("cd zoo & python a.py", "needs a shell"),
        ("python a.py | grep x", "needs a shell"),
        ("python a.py < in", "needs a shell"),
        ("python a.py $(date)", "needs a shell"),
        ("python a.py `date`", "needs a shell"),
        ('python a.py "`date`"', "needs a shell"),
        ("(python a.py)", "needs a shell"),
        ("python a.py $HOME", "os.environ\\['HOME'\\]"),
        ("python -c 'print()'", "names no program"),
        ("python", "names no program"),
        ("python -m", "names no program"),
        ("horovodrun python a.py", "is not Python"),
        ("python 'a.py", "not closed"),
        ('python "a.py', "not closed"),
        ("python a.py \0", "zero"),
    ],
)
def test_what_only_a_shell_could_do_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_job_command(text, KNOWN)


@settings(deadline=None)
@given(st.text(alphabet="pa.y -=\"'\\$N{};&|<>()\n`#1", max_size=30) | st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_job_command(text, KNOWN)
    except UsageError:
        return
    assert found.words


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no Bash to compare with")
@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.text(alphabet="ab \"'\\$N{}=:.,/\n#", max_size=8), min_size=1, max_size=6).map(" ".join))
def test_the_words_are_those_of_bash(text: str) -> None:
    try:
        want = [str(word) for word in split_line(text, KNOWN)]
    except UsageError:
        return
    if "\n" in text or any(part.startswith("{") or "{" in part for part in text.split()) or "$D" in text:
        return  # several commands, lists in braces
    script = f"printf '%s\\0' {text}"
    done = subprocess.run(["bash", "-c", script], env={**KNOWN, "PATH": "/bin"}, capture_output=True, check=False)
    words = done.stdout.decode().split("\0")[:-1]
    assert done.returncode != 0 or words == (want or [""]), text


@pytest.mark.parametrize("text", ["LEGATO_DRIVER_FILE=/x python a.py", "export LEGATO_TOKEN=x; python a.py"])
def test_variables_of_the_platform_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="with --job_command: it is the platform's own"):
        read_job_command(text)
    assert read_job_command("export LEGATO_SEED=7; LEGATO_ELASTICDL_SUM=1 python a.py").variables == {
        "LEGATO_SEED": "7",
        "LEGATO_ELASTICDL_SUM": "1",
    }
