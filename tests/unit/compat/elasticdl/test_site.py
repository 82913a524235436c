"""The modules and names that programs of ElasticDL import, in every release, and how programs start."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import fork_server

from legato.compat.elasticdl import controller, data_service, horovod_names, optimizer, synchronization
from legato.compat.elasticdl.client import MasterClient
from legato.compat.elasticdl.site import launch
from legato.compat.elasticdl.site.elasticai_api.util import grpc_utils
from legato.core.errors import ProgramError, UsageError

SITE = Path(launch.__file__).parent
NAMES = {
    "elasticai_api.common.data_shard_service": [
        data_service.DataShardService,
        data_service.RecordIndexService,
        data_service.build_data_shard_service,
    ],
    "elasticai_api.pytorch.controller": [
        controller.PyTorchAllReduceController,
        controller.create_elastic_controller,
    ],
    "elasticai_api.common.base_controller": [controller.AllReduceController],
    "elasticai_api.common.master_client": [MasterClient],
    "elasticai_api.common.synchronization": [synchronization.worker_sync, synchronization.wait_worker_sync],
    "elasticai_api": [synchronization.worker_sync, synchronization.delete_all_worker_sync],
    "elasticdl.python.worker.allreduce_controller": [controller.PyTorchAllReduceController],
    "elasticdl.python.worker.data_shard_service": [data_service.DataShardService, data_service.RecordIndexService],
    "elasticdl.python.worker.master_client": [MasterClient],
    "elasticdl.python.allreduce.pytorch_controller": [
        controller.create_elastic_controller,
        controller.get_elastic_controller,
    ],
    "elasticdl.python.allreduce.torch_optimizer": [optimizer.Compression],
    "elasticdl.python.common.grpc_utils": [grpc_utils.build_channel, grpc_utils.find_free_port],
    "horovod.torch": [horovod_names.init, horovod_names.size, optimizer.Compression],
}
TENSORFLOW = (
    "elasticai_api.tensorflow.controller.create_elastic_controller",
    "elasticai_api.tensorflow.hooks.ElasticDataShardReportHook",
    "elasticai_api.tensorflow.optimizer.DistributedOptimizer",
    "elasticdl.python.allreduce.tensorflow_controller.TensorFlowV2AllReduceController",
    "elasticdl.python.allreduce.tensorflow_optimizer.AdjustBackwardPassesPerStepHook",
)
OTHERS = (
    "elasticai_api.io.recordio_reader.RecordIOReader",
    "elasticai_api.pytorch.DDP_controller.DDPController",
)


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("legato.train.data.seeds.seed_job", lambda seed: None)
    monkeypatch.syspath_prepend(str(SITE))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("elasticai_api", "elasticdl", "horovod")]:
        del sys.modules[name]


@pytest.mark.parametrize("module", NAMES)
def test_every_release_finds_its_names(module: str) -> None:
    found = importlib.import_module(module)
    for thing in NAMES[module]:
        assert getattr(found, thing.__name__) is thing
    assert all(hasattr(found, name) for name in getattr(found, "__all__", ()))


def test_the_optimizer_goes_by_its_own_name_everywhere() -> None:
    for module in ("elasticai_api.pytorch.optimizer", "elasticdl.python.allreduce.torch_optimizer"):
        assert importlib.import_module(module).DistributedOptimizer is optimizer.distribute
    old = importlib.import_module("elasticdl.python.allreduce.torch_optimizer")
    assert old.ElasticDistributedOptimizer is optimizer.distribute
    assert importlib.import_module("elasticai_api.common.constants").WorkerEnv.WORKER_NUM == "WORKER_NUM"
    assert importlib.import_module("elasticai_api.util.log_utils").default_logger.name == "elastic.logger"
    assert importlib.import_module("elasticdl.python.common.constants").Mode.TRAINING == "training"


@pytest.mark.parametrize("name", [*TENSORFLOW, *OTHERS])
def test_what_is_not_supported_says_what_to_use(name: str) -> None:
    module, _, wanted = name.rpartition(".")
    with pytest.raises(ImportError, match=f"{wanted} .*is not supported.*"):
        exec(f"from {module} import {wanted}")


def test_a_collective_of_the_program_is_refused_with_more_workers_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert horovod_names.allreduce(3) == 3
    monkeypatch.setattr(horovod_names, "size", lambda: 2)
    with pytest.raises(ProgramError, match=r"The program itself calls hvd\.allreduce, with 2 workers"):
        horovod_names.allreduce(3)


def run(*args: str, directory: Path) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    environment = ours | {"PYTHONPATH": str(SITE.parents[3])}
    return fork_server.run([sys.executable, *args], timeout=110, cwd=directory, env=environment)


def test_a_module_is_found_in_the_working_directory_and_the_packages_beside_it(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/__init__.py").touch()
    (tmp_path / "zoo/train.py").write_text(
        "import sys, elasticai_api as api, torch\nprint(sys.argv[1:], __name__, api.__file__, torch.rand(1).item())\n"
    )
    done = [run(launch.__file__, "-m", "zoo.train", "--epochs", "2", directory=tmp_path).stdout for _ in range(2)]
    assert done[0] == done[1] and done[0].startswith(f"['--epochs', '2'] __main__ {SITE}/elasticai_api/__init__.py")


@pytest.mark.parametrize("as_module", [True, False])
def test_in_elasticdls_own_clone_its_unbuilt_packages_are_ignored(tmp_path: Path, as_module: bool) -> None:
    for name in ("elasticai_api", "elasticai_api/common", "elasticai_api/proto", "elasticdl", "model_zoo"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    # The modules that protoc generates are missing.
    (tmp_path / "elasticai_api/common/data_shard_service.py").write_text(
        "from elasticai_api.proto import elasticai_api_pb2\n"
    )
    program = (
        "from elasticai_api.common.data_shard_service import RecordIndexService\n"
        "from elasticdl.python.common.log_utils import default_logger\n"
        "import model_zoo\n"
        "print(RecordIndexService.__module__, model_zoo.__file__)\n"
    )
    (tmp_path / "model_zoo/train.py").write_text(program)
    (tmp_path / "train.py").write_text(program)
    words = ("-m", "model_zoo.train") if as_module else ("train.py",)
    done = run(launch.__file__, *words, directory=tmp_path)
    assert done.stdout == f"legato.compat.elasticdl.data_service {tmp_path}/model_zoo/__init__.py\n", done.stderr
    assert f"legato: {tmp_path} has packages named elasticai_api, elasticdl." in done.stderr


def test_the_controller_of_november_2020_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"Pass it in the program: get_elastic_controller\(batch_size="):
        controller.get_elastic_controller()
    assert controller.get_elastic_controller(4, num_epochs=1, dataset_size=8).batch_count_per_epoch == 2


def test_where_the_packages_are_is_printed(tmp_path: Path) -> None:
    assert run("-m", "legato.compat.elasticdl.site", directory=tmp_path).stdout == f"{SITE}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [([], "There is no program to run"), (["-m"], "There is no program to run"), (["no.py"], "no program no.py in")],
)
def test_a_program_that_is_not_there_is_refused(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        launch.main(arguments)


IMAGES = """
import pickle, sys
import torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    try:
        library.define(name + "(Tensor boxes, Tensor scores, float limit) -> Tensor")
    except RuntimeError:
        pass
from PIL import Image
from pathlib import Path
from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.pytorch.dataset import IMG_EXTENSIONS, ElasticImageFolder
from torchvision.datasets import ImageFolder

for name in "ab":
    Path("data", name).mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(Path("data", name, f"{number}.png"))
images = ElasticImageFolder("data", transform=lambda image: image.getpixel((0, 0))[0])
assert isinstance(images, ImageFolder) and ".png" in IMG_EXTENSIONS
assert len(images) == 4 and images[3] == (1, 1)
service = RecordIndexService(batch_size=2, num_epochs=1, dataset_size=len(images))
images.set_data_shard_service(service)
assert len(images) == sys.maxsize
assert [images[9] for _ in range(4)] == [(0, 0), (1, 0), (0, 1), (1, 1)]
assert pickle.loads(pickle.dumps(ElasticImageFolder)) is ElasticImageFolder
ElasticImageFolder("nowhere")
"""


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_service_chooses_the_images_of_torchvisions_folder(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(IMAGES)
    done = run(launch.__file__, "program.py", directory=tmp_path)
    (error,) = [line for line in done.stderr.splitlines() if "Error: " in line]
    assert error.endswith(
        "The folder nowhere with the images does not exist. Check the path that the program uses, and that the folder "
        "is on this machine."
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "There is no program to run."),
        (("-m",), "There is no program to run."),
        (("nothere.py",), "There is no program nothere.py in "),
        (("-m", "nothere.program"), "There is no module nothere.program in "),
        (("-m", ".program"), "There is no module .program in "),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = run(launch.__file__, *words, directory=tmp_path)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith(f"legato: {told}")) == (2, True), done.stderr
