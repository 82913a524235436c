"""The grammar of the `elasticdl` command: prefixes, switches, unknown and misused words, and random words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.compat.elasticdl.arguments import (
    HelpAsked,
    InvalidArguments,
    ParsedCommand,
    expand,
    explain_unknown,
    read_arguments,
    render_help,
)
from legato.compat.elasticdl.flags import FLAGS, Flag

TRAIN = ("train", "--job_name=a")
NAMES = [flag.name for flag in FLAGS["train"]]
EARLY = [flag.name for flag in FLAGS["train"] if not flag.is_late]


def value(name: str, *words: str) -> object:
    return read_arguments([*TRAIN, *words]).values[name]


def test_defaults_are_those_of_the_original() -> None:
    values = read_arguments(TRAIN).values
    want = {
        "num_workers": 2,
        "num_ps_pods": 0,
        "num_minibatches_per_task": 8,
        "minibatch_size": 64,
        "num_epochs": 1,
        "distribution_strategy": "ParameterServerStrategy",
        "image_pull_policy": "Always",
        "restart_policy": "Never",
        "master_resource_request": "cpu=0.1,memory=1024Mi",
        "worker_resource_request": "cpu=1,memory=4096Mi",
        "need_pod_manager": True,
        "need_task_manager": True,
        "task_fault_tolerance": True,
        "relaunch_timeout_worker": False,
        "relaunch_on_worker_failure": 1,
        "log_level": "INFO",
        "namespace": "default",
        "num_evaluators": 0,
        "critical_worker_index": "default",
        "log_loss_steps": 100,
    }
    assert {name: values[name] for name in want} == want


@pytest.mark.parametrize(
    ("word", "name", "want"),
    [
        ("--num_ps=1", "num_ps_pods", 1),
        ("--num_evaluator=1", "num_evaluators", 1),
        ("--num_e=3", "num_epochs", 3),
        ("--evalu=3", "evaluation_steps", 3),
        ("--num_w=7", "num_workers", 7),
        ("--log_level=debug", "log_level", "DEBUG"),
        ("--envs=a=b", "envs", "a=b"),
    ],
)
def test_what_words_mean(word: str, name: str, want: object) -> None:
    assert value(name, word) == want
    flag, _, said = word.partition("=")
    assert value(name, flag, said) == want


@pytest.mark.parametrize("said", ["true", "True", "YES", "t", "y", "Y"])
def test_what_switches_on(said: str) -> None:
    assert value("use_async", f"--use_async={said}") is True


@pytest.mark.parametrize("said", ["false", "1", "on", "no", "", "yeah"])
def test_everything_else_switches_off(said: str) -> None:
    assert value("need_task_manager", "--need_task_manager", said) is False


def test_a_switch_without_a_value_is_the_contrary_of_its_default() -> None:
    assert value("need_task_manager", "--need_task_manager") is False
    assert value("use_async", "--use_async", "--num_workers=2") is True


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train",), "required: --job_name"),
        (("train", "--job_name"), "expected one argument"),
        ((*TRAIN, "--image", "x"), "ambiguous option: --image could match --image_name, --image_pull_policy"),
        ((*TRAIN, "--num_workers=two"), "invalid int value"),
        ((*TRAIN, "--restart_policy=Maybe"), "invalid choice: 'Maybe'"),
        ((*TRAIN, "--distribution_strategy=allreduce"), "invalid choice"),
        (("zoo",), "zoo_command"),
        (("zoo", "build", "."), "--image"),
        (("zoo", "push"), "image"),
        (("stop", "a"), "invalid choice: 'stop'"),
        (("evaluate", "--job_name=a", "--validation_data=b"), "--checkpoint_dir_for_init"),
        (("predict", "--job_name=a", "--checkpoint_dir_for_init=b"), "--prediction_data"),
    ],
)
def test_what_is_misused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        read_arguments(words)
    assert told in str(caught.value)


def test_unknown_flags_are_ignored_and_reported() -> None:
    asked = read_arguments([*TRAIN, "--use_go_ps=true", "--num_workres", "3", "--tensorboard_log_dir", "/x", "-v"])
    assert asked.unknown == ("--use_go_ps=true", "--num_workres", "3", "--tensorboard_log_dir", "/x", "-v")
    assert explain_unknown(asked) == [
        "--use_go_ps is a flag of an early release of ElasticDL and is ignored.",
        "--num_workres is unknown and is ignored. Did you mean --num_workers?",
        "--tensorboard_log_dir is a flag of an early release of ElasticDL and is ignored.",
        "-v is unknown and is ignored.",
    ]
    assert asked.values["num_workers"] == 2


def test_words_after_two_hyphens_are_ignored() -> None:
    asked = read_arguments([*TRAIN, "--", "--num_w=9", "x"])
    assert asked.values["num_workers"] == 2
    assert explain_unknown(asked) == ["Words after -- are ignored."]


@pytest.mark.parametrize("words", [("--help",), ("train", "-h"), ("train", "--job_name=a", "--he"), ("zoo", "--help")])
def test_help_ends_it(words: tuple[str, ...]) -> None:
    with pytest.raises(HelpAsked, match="usage: elasticdl"):
        read_arguments(words)


def test_the_help_names_the_commands() -> None:
    assert all(word in render_help() for word in ("train", "evaluate", "predict", "zoo", "pods"))


@pytest.mark.parametrize("name", EARLY)
def test_a_prefix_of_a_flag_keeps_its_meaning_of_earlier_releases(name: str) -> None:
    flags = FLAGS["train"]
    for length in range(1, len(name) + 1):
        short = name[:length]
        meant = [other for other in EARLY if other.startswith(short)]
        if len(meant) == 1 or short in EARLY:
            want = short if short in NAMES else meant[0]
            assert expand(f"--{short}=x", flags) == f"--{want}=x"


WORDS = st.one_of(
    st.sampled_from([f"--{name}" for name in NAMES] + ["--", "-x", "--=", "-", "zoo", "train"]),
    st.sampled_from(NAMES).flatmap(lambda name: st.integers(1, len(name)).map(lambda length: f"--{name[:length]}=1")),
    st.text(max_size=8),
)


@settings(deadline=None)
@given(st.sampled_from(["train", "evaluate", "predict", "zoo", "pods", ""]), st.lists(WORDS, max_size=8))
def test_any_words_are_understood_or_refused(command: str, words: list[str]) -> None:
    try:
        asked = read_arguments([command, *words])
    except (InvalidArguments, HelpAsked):
        return
    assert isinstance(asked, ParsedCommand)
    assert {flag.name for flag in FLAGS[asked.command]} <= set(asked.values)
    explain_unknown(asked)


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab=-_ ", max_size=6), max_size=6), st.sampled_from(NAMES))
def test_a_value_is_kept_as_it_was_said(values: list[str], name: str) -> None:
    flag = next(flag for flag in FLAGS["train"] if flag.name == name)
    if flag.kind != "text" or flag.choices:
        return
    words = [f"--{name}={said}" for said in values]
    found = read_arguments(["train", "--job_name=a", *words]).values[name]
    assert found == (values[-1] if values else ("a" if name == "job_name" else flag.default))


def test_all_flags_have_an_effect_and_a_reason() -> None:
    for flags in FLAGS.values():
        assert len({flag.name for flag in flags}) == len(flags)
        assert all(isinstance(flag, Flag) and flag.why and flag.effect for flag in flags)
