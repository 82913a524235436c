"""The section ``[kubernetes]``, and the file with the user's pod template."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.control.settings import read_settings
from legato.core.errors import SettingsError, UsageError
from legato.server.clusters import make_kubernetes, read_template

HEAD = """
host = "0.0.0.0"
tls = "own"
allowed_hosts = ["legato.lab"]
[kubernetes]
namespace = "lab"
max_agents = 2
"""


def read(folder: Path, text: str) -> object:
    file = folder / "legato.toml"
    file.write_text(HEAD + text)
    return read_settings(file).kubernetes


def test_amounts_may_be_numbers_and_have_the_units_of_kubernetes(tmp_path: Path) -> None:
    found = read(tmp_path, 'cpu = 4\nmemory = "1.5Gi"\ngpus = 2')
    assert found is not None
    assert (found.cpu, found.memory, found.num_slots) == ("4", "1.5Gi", 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('memory = "16 GB"', "kubernetes.memory"),
        ("cpu = true", "kubernetes.cpu"),
        ("gpus = 2\nslots = 2", "slots is for pods without GPUs"),
        ('context = "lab"', "context names a part of kubeconfig"),
        ("gpu = 2", "there is no setting kubernetes.gpu. Did you mean kubernetes.gpus?"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused_with_the_setting(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: [", "it is no valid YAML"),
        ("- a", "it must be a map with metadata and spec"),
        ("#" * 300_000, "it has more than 256 KiB"),
        ("a: &a [*a]", "it is no valid YAML"),
    ],
)
def test_a_template_that_is_no_pod_is_refused_with_its_file(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_template(file)
    assert str(caught.value).startswith(f"Cannot use the pod template {file}: ")
    assert told in str(caught.value)


def test_a_missing_template_and_a_contradiction_are_named_at_the_start_of_the_server(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes_asyncio")
    (tmp_path / "home-id").write_text("0123456789abcdef\n")
    with pytest.raises(UsageError, match=r"Cannot read the pod template .*none\.yaml: No such file"):
        read_template(tmp_path / "none.yaml")
    (tmp_path / "pod.yaml").write_text("spec: {restartPolicy: Always}")
    found = read(tmp_path, f'image = "x"\npod_template = "{tmp_path}/pod.yaml"')
    with pytest.raises(UsageError, match=r"spec\.restartPolicy"):
        make_kubernetes(found, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no image is named"):
        make_kubernetes(read(tmp_path, ""), tmp_path)  # type: ignore[arg-type]


def test_a_template_has_only_what_json_has(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("metadata: {annotations: {built: 2026-01-02, key: !!binary aGk=}}")
    assert read_template(file) == {"metadata": {"annotations": {"built": "2026-01-02", "key": "aGk="}}}
