"""The tutorial of IBM's document, in its words, by two users who have nothing else: no hint is needed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.platform import Platform
from tests.console.conftest import Person

PROGRAM = """\
import argparse, os
from fabric_model import FabricModel
parser = argparse.ArgumentParser()
parser.add_argument("--numWorker", default="100")
print("data:", sorted(os.listdir(os.environ["DATA_DIR"])))
"""


def makes_project(person: Person, name: str) -> None:
    person.opens("/submit")
    person.page.get_by_role("button", name="New project").click()
    dialog = person.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Create").click()
    dialog.wait_for(state="detached")


def test_two_users_follow_the_document_and_the_second_asks_for_the_definition_of_the_first(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    archive = tmp_path / "pytorch-mnist-edt-model.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("pytorch_mnist_EDT.py", PROGRAM)

    ann = people("sue")
    makes_project(ann, "MNIST of Sue")
    page = ann.page
    page.get_by_label("Name", exact=True).fill("first EDT")
    page.get_by_label("Data path").fill("pytorch-mnist")
    page.get_by_role("button", name="Add training definition").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("pytorch-mnist-edt")
    dialog.locator("input[data-pick=files]").set_input_files(archive)
    dialog.get_by_label("Framework").select_option(label="pytorch-onnx 1.1-py 3.6")
    dialog.get_by_label("Execution command").fill("pytorch_mnist_EDT.py")
    dialog.get_by_text("Compute configuration").wait_for()
    dialog.get_by_text("1 CPU slot per node").wait_for()
    dialog.get_by_role("button", name=re.compile("^Elastic")).click()
    dialog.get_by_label("Maximum nodes").fill("4")
    ann.finds_no_barrier()
    ann.shows("ibm-definition")
    dialog.get_by_role("button", name="Create").click()
    ann.sees(re.compile("runs here with torch"))
    dialog.wait_for(state="detached")
    ann.sees("PyTorch, elastic (FabricModel)")

    # The data are not there yet: the preview says so, and nothing is left behind.
    ann.sees(re.compile("there is no data directory '.*pytorch-mnist'"))
    page.get_by_role("button", name="Create and run").click()
    page.locator(".field-wrong").filter(has_text="there is no data directory").wait_for()
    assert running.client.experiments("MNIST of Sue") == []
    data = Path(running.environment["LEGATO_HOME"], "data", "pytorch-mnist")
    for name in ("MNIST", "processed", "raw"):
        (data / name).mkdir(parents=True)
    page.get_by_role("button", name="Create and run").click()
    page.wait_for_url(re.compile("/experiments/"))

    bob = people("tom")
    makes_project(bob, "MNIST of Tom")
    bob.page.get_by_label("Name", exact=True).fill("second EDT")
    bob.page.get_by_label("Data path").fill("pytorch-mnist")
    bob.page.get_by_role("button", name="Add training definition").click()
    dialog = bob.page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Existing definition").click()
    bob.finds_no_barrier()
    bob.shows("ibm-ask")
    dialog.get_by_role("button", name="Ask sue for access").click()
    dialog.get_by_text("asked", exact=False).first.wait_for()

    answer = page.get_by_role("link", name="Answer")
    answer.wait_for()
    ann.finds_no_barrier()
    answer.click()
    ann.sees(re.compile("asks for access to your training definitions"))
    ann.finds_no_barrier()
    ann.shows("ibm-grant")
    page.get_by_role("button", name="Add to project").click()
    ann.sees("tom is now a member of MNIST of Sue.")

    # The first one's answer appears where the second one asked.
    dialog.get_by_text("gave you access to the project MNIST of Sue", exact=False).wait_for()
    bob.finds_no_barrier()
    bob.shows("ibm-granted")
    dialog.get_by_role("button", name="Show its definitions").click()
    dialog.get_by_text("gave you access", exact=False).wait_for(state="detached")
    dialog.get_by_role("radio").check()
    dialog.get_by_role("button", name="Add", exact=True).click()
    dialog.wait_for(state="detached")
    bob.page.get_by_role("button", name="Create and run").click()
    bob.page.wait_for_url(re.compile("/experiments/"))

    bob.opens("/tokens")
    bob.page.get_by_role("link", name="dlicmd.py").wait_for()
    bob.finds_no_barrier()
    with bob.page.expect_download() as download:
        bob.page.get_by_role("link", name="dlicmd.py").click()
    assert "--exec-start" in Path(download.value.path()).read_text()
    for name in ("first-EDT-pytorch-mnist-edt", "second-EDT-pytorch-mnist-edt"):
        job = running.client.job(name)
        assert job.wait().stage == "succeeded", job.reason
        assert any("data: ['MNIST', 'processed', 'raw']" in line.text for line in job.logs())
