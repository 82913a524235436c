"""What `elasticdl train` submits: workers, priorities, paths, the folder of the program; and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.compat.elasticdl.arguments import read_arguments
from legato.compat.elasticdl.ordering import (
    Order,
    check_folders,
    check_supported,
    check_values,
    make_order,
    with_python,
)
from legato.core.errors import UsageError

MODULE = "python -m model_zoo.mnist.mnist_pytorch --training_data=/data/mnist_png/training"
ALLREDUCE = "--distribution_strategy=AllreduceStrategy"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("model_zoo/__init__.py", "model_zoo/mnist/mnist_pytorch.py", "model_zoo/tool/__main__.py", "train.py"):
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / name).touch()
    (tmp_path / "clone/data/mnist_png").mkdir(parents=True)
    (tmp_path / "other/own.py").parent.mkdir()
    (tmp_path / "other/own.py").touch()
    return tmp_path / "clone"


def order(here: Path, *words: str, command: str = MODULE) -> Order:
    asked = read_arguments(["train", "--job_name=mnist", f"--job_command={command}", ALLREDUCE, *words])
    check_values(asked)
    return make_order(asked, here)


def test_the_command_of_the_tutorial(here: Path) -> None:
    volume = f"--volume=host_path={here}/data,mount_path=/data"
    found = order(here, volume, "--num_minibatches_per_task=2", "--envs=USE_TORCH=true,D=/data/x", "--image_name=i")
    assert found.words == (
        "--num_minibatches_per_task=2",
        "-m",
        "model_zoo.mnist.mnist_pytorch",
        f"--training_data={here}/data/mnist_png/training",
    )
    assert (found.folder, found.left_out) == (here, ("data",))
    assert found.options == {
        "name": "mnist",
        "max_workers": 2,
        "min_workers": 1,
        "is_elastic": True,
        "environment": {"USE_TORCH": "true", "D": f"{here}/data/x"},
        "labels": {"app": "elasticdl", "elasticdl-job-name": "mnist"},
    }
    mounted, accepted = found.notices
    assert f"/data is {here}/data" in mounted
    assert accepted.startswith("Without effect: --image_name (Legato runs jobs without a container")


def test_an_image_that_the_operator_maps_gives_workers_its_python(here: Path) -> None:
    words = ["--image_name=elasticdl:v1", "--worker_image=elasticdl:mnist"]
    asked = read_arguments(["train", "--job_name=mnist", f"--job_command={MODULE}", ALLREDUCE, *words])
    found = make_order(asked, here)
    assert with_python(found, asked, ["elasticdl:other"]) == found
    mapped = with_python(found, asked, ["elasticdl:mnist"])
    assert mapped.options["python"] == "elasticdl:mnist"
    (notice,) = (notice for notice in mapped.notices if "Without effect" in notice)
    assert "--image_name" in notice and "--worker_image" not in notice


def test_the_command_of_elasticdls_readme_gets_an_error_about_keras(here: Path) -> None:
    words = ["--image_name=elasticdl:mnist", "--model_zoo=model_zoo", "--training_data=/data/mnist/train"]
    words += ["--model_def=mnist.mnist_functional_api.custom_model", "--job_name=test-mnist"]
    asked = read_arguments(["train", *words, "--volume=host_path=/data,mount_path=/data"])
    check_values(asked)
    with pytest.raises(UsageError) as refused:
        make_order(asked, here)
    assert "is a model for the Keras job service" in str(refused.value)
    assert "Train Keras models with FabricModel (docs/wmla.md)" in str(refused.value)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("--num_workers=4",), (1, 4, True)),
        (("--num_workers=4", "--aux_params=exact_num_workers=True"), (4, 4, False)),
        (("--num_workers=4", "--aux_params=disable_relaunch=True;min_workers=2"), (2, 4, True)),
        (("--num_workers=1",), (1, 1, True)),
    ],
)
def test_how_many_workers_there_may_be(here: Path, words: tuple[str, ...], want: tuple[int, int, bool]) -> None:
    options = order(here, *words).options
    assert (options["min_workers"], options["max_workers"], options["is_elastic"]) == want


@pytest.mark.parametrize(("said", "want"), [("high", 7500), ("low", 2500), ("0.5", 5000), ("", None)])
def test_priorities(here: Path, said: str, want: int | None) -> None:
    assert order(here, f"--worker_pod_priority={said}").options.get("priority") == want


@pytest.mark.parametrize(
    ("command", "words", "below"),
    [
        ("python train.py", ("train.py",), ""),
        ("python ./model_zoo/mnist/mnist_pytorch.py", ("model_zoo/mnist/mnist_pytorch.py",), ""),
        ("python -m model_zoo.tool", ("-m", "model_zoo.tool"), ""),
        ("cd model_zoo/mnist && python mnist_pytorch.py", ("mnist_pytorch.py",), "model_zoo/mnist"),
        ("cd model_zoo && python -m mnist.mnist_pytorch", ("-m", "mnist.mnist_pytorch"), "model_zoo"),
        ("cd /model_zoo && python mnist/mnist_pytorch.py", ("mnist/mnist_pytorch.py",), "model_zoo"),
        ("cd /nowhere-such && python train.py", ("train.py",), ""),
        ("python /model_zoo/mnist/mnist_pytorch.py", ("model_zoo/mnist/mnist_pytorch.py",), ""),
        ("python HERE/train.py", ("train.py",), ""),
        ("python -m json.tool", ("-m", "json.tool"), ""),
    ],
)
def test_where_a_program_is_found(here: Path, command: str, words: tuple[str, ...], below: str) -> None:
    found = order(here, command=command.replace("HERE", str(here)))
    assert (found.words, found.folder) == (words, here / below)


def test_a_program_elsewhere_goes_with_its_own_folder(here: Path) -> None:
    other = here.parent / "other"
    found = order(here, command=f"python {other}/own.py")
    assert (found.words, found.folder) == (("own.py",), other)
    assert f"Legato takes the program from {other}." in found.notices
    found = order(here, f"--volume=host_path={other},mount_path=/code", command="python /code/own.py")
    assert (found.words, found.folder, found.left_out) == (("own.py",), other, ())


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("python no.py", "There is no program no.py in"),
        ("python ../other/own.py", "There is no program ../other/own.py"),
        ("python /no/such.py", "There is no program /no/such.py on this machine"),
        ("python -m model_zoo.no", "no module model_zoo.no"),
        ("python -m no_such_package.x", "Change to the folder that contains no_such_package"),
        ("python -m a/b.py", "not a name of a module"),
        ("", "The option --job_command is missing"),
    ],
)
def test_missing_programs_are_refused(here: Path, command: str, told: str) -> None:
    if command == "python -m model_zoo.no":
        told = "There is no module model_zoo.no"
    with pytest.raises(UsageError, match=told):
        order(here, command=command)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--num_workers=0",), "--num_workers=0: give at least 1"),
        (("--num_workers=-2",), "--num_workers=-2: it is below 0"),
        (("--num_workers=100001",), "at most 100000"),
        (("--num_minibatches_per_task=0",), "give at least 1"),
        (("--max_step=-1",), "--max_step=-1: it is below 0"),
        (("--job_name=Bad_Name",), "Try 'bad-name'"),
        (("--envs=1a=2",), "letters, digits"),
        (("--worker_resource_request=cpu=-1",), "cpu is a number above 0"),
        (("--ps_resource_limit=cpu=x",), "Cannot read --ps_resource_limit"),
        (("--worker_resource_request=gpu=2",), "A worker has one GPU"),
        (("--worker_pod_priority=urgent",), "--worker_pod_priority"),
        (("--volume=claim_name=c,mount_path=/c",), "Cannot mount the claim 'c': Legato uses no cluster"),
        (("--volume=host_path={data_dir},mount_path=/c",), "from the root"),
        (("--aux_params=min_workers=3",), "from 1 to --num_workers=2"),
        (("--distribution_strategy=Local",), "--num_workers=1"),
        (("--distribution_strategy=CustomStrategy",), "'CustomStrategy' is not supported"),
        (("--distribution_strategy=",), "'' is not supported"),
        (("--distribution_strategy=ParameterServerStrategy", "--num_ps=1"), "Parameter servers"),
        (("--need_elasticdl_job_service=true",), "Keras job service"),
        (("--need_tf_config=true",), "TensorFlow's own strategies"),
    ],
)
def test_what_is_refused_before_anything_starts(here: Path, words: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        order(here, *words)
    assert told in str(caught.value)


def test_no_parameter_servers_are_allreduce() -> None:
    told = check_supported(read_arguments(["train", "--job_name=a"]))
    assert told is not None
    assert "is AllreduceStrategy" in told
    assert check_supported(read_arguments(["train", "--job_name=a", ALLREDUCE])) is None


def test_a_home_directory_is_not_uploaded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    with pytest.raises(UsageError, match="would upload all of it"):
        order(here)


def test_a_mount_path_that_nothing_names_is_reported(here: Path) -> None:
    found = order(here, f"--volume=host_path={here}/data,mount_path=/else", command="python train.py 2>&1 | tee x")
    assert [notice.partition(" /else")[0] for notice in found.notices] == [
        "The command and the variables do not contain",
        "Dropped from the command: 2>&1 | tee x. What workers print is kept as logs.",
    ]


def test_search_paths_of_the_image_are_those_of_the_copy(here: Path) -> None:
    found = order(here, f"--envs=PYTHONPATH=/model_zoo:.:/usr:/no:{here}", command="python train.py")
    assert found.options["environment"] == {"PYTHONPATH": f"model_zoo:.:/usr:/no:{here}"}


def test_documented_variables_become_what_the_platform_has_for_them(here: Path) -> None:
    variables = "--envs=LEGATO_ELASTICDL_SUM=1,LEGATO_SEED=7,LEGATO_ELASTICDL_MINIBATCHES_PER_TASK=3,A=1"
    found = order(here, variables, command="python train.py")
    assert found.words == ("--num_minibatches_per_task=3", "--add_gradients", "train.py")
    assert (found.options["seed"], found.options["environment"]) == (7, {"A": "1"})
    found = order(here, variables, "--num_minibatches_per_task=2", command="LEGATO_ELASTICDL_SUM=0 python train.py")
    assert found.words == ("--num_minibatches_per_task=2", "train.py")
    with pytest.raises(UsageError, match="Cannot set LEGATO_SEED=-1"):
        order(here, command="LEGATO_SEED=-1 python train.py")


def test_data_are_not_uploaded_under_any_link(here: Path) -> None:
    (here.parent / "link").symlink_to(here, target_is_directory=True)
    (here / "linked").symlink_to(here.parent / "other", target_is_directory=True)
    for named, left_out in ((here.parent / "link/data", "data"), (here / "linked", "linked")):
        for stand in (here, here.parent / "link"):
            found = order(stand, f"--volume=host_path={named},mount_path=/x", command="python train.py")
            assert found.left_out == (left_out,)
    assert order(here, f"--volume=host_path={here.parent}/other,mount_path=/x").left_out in ((), ("linked",))


def test_folders_are_looked_for(here: Path) -> None:
    volumes = order(here, f"--volume=host_path={here}/no,mount_path=/data").host_folders
    with pytest.raises(UsageError, match=r"There is no folder .*/no on this machine, which --volume names for /data"):
        check_folders(volumes)
    check_folders(order(here, f"--volume=host_path={here}/no,type=DirectoryOrCreate,mount_path=/data").host_folders)
    assert (here / "no").is_dir()
    check_folders(volumes)
