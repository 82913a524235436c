"""The section ``[kubernetes]``, and the file with the user's pod template."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from legato.clusters.pilots import PilotRules
from legato.clusters.pods import hash_specification
from legato.control.settings import read_settings
from legato.core.errors import SettingsError, UsageError
from legato.server import clusters
from legato.server.clusters import make_kubernetes, make_pools, read_template

URL = "https://pods.lab:8765"
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
        make_kubernetes(found, tmp_path, URL)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no image is named"):
        make_kubernetes(read(tmp_path, ""), tmp_path, URL)  # type: ignore[arg-type]


class PoolOfTest:
    """Has what `make_pools` gives to a `PilotPool`."""

    def __init__(self, cluster: Any, rules: PilotRules, *_: Any, url: str, **__: Any) -> None:
        self.cluster, self.rules, self.url = cluster, rules, url


def make_pool(folder: Path, monkeypatch: pytest.MonkeyPatch, template: str) -> PoolOfTest:
    monkeypatch.setattr(clusters, "PilotPool", PoolOfTest)
    monkeypatch.setattr(clusters, "make_token_suffix", lambda *_: "")
    monkeypatch.delenv("LEGATO_HOME")  # it goes before the file
    (folder / "home-id").write_text("0123456789abcdef\n")
    (folder / "pod.yaml").write_text(template)
    (folder / "legato.toml").write_text(
        f'home = "{folder}"\n{HEAD}image = "x"\npod_template = "{folder}/pod.yaml"\nurl = "{URL}"'
    )
    settings, unused = read_settings(folder / "legato.toml"), cast("Any", None)
    pools = make_pools(settings, unused, "https://localhost:8765", "", read_snapshot=unused, leads=unused, now=unused)
    return cast("PoolOfTest", pools["kubernetes"])


@pytest.mark.parametrize(
    ("template", "want"),
    [("spec: {activeDeadlineSeconds: 600}", 240), ("spec: {activeDeadlineSeconds: 86400}", 900), ("spec: {}", 900)],
)
def test_pods_with_a_deadline_are_replaced_in_time_but_not_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, want: float
) -> None:
    pytest.importorskip("kubernetes_asyncio")
    assert make_pool(tmp_path, monkeypatch, template).rules.replace_s == want


def test_pods_are_compared_with_the_url_that_orders_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kubernetes_asyncio")
    pool = make_pool(tmp_path, monkeypatch, "spec: {}")
    assert pool.url == URL
    assert pool.cluster._specification == hash_specification(pool.cluster._shape, URL)


def test_a_template_has_only_what_json_has(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("metadata: {annotations: {built: 2026-01-02, key: !!binary aGk=}}")
    assert read_template(file) == {"metadata": {"annotations": {"built": "2026-01-02", "key": "aGk="}}}
