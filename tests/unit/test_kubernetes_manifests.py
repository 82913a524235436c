"""The manifests in ``deploy/kubernetes``: least rights, references that fit, and settings that the server accepts."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from legato.clusters import kubernetes
from legato.clusters.pilots import PilotOrder
from legato.clusters.pods import HOME, Owner, PodShape, build_pod
from legato.control.settings import read_settings
from legato.server.clusters import find_url, make_kubernetes, read_template

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy/kubernetes"
BASE = DEPLOY / "base"
OVERLAY = DEPLOY / "overlays/cpu"
COMPONENTS = sorted((DEPLOY / "components").iterdir())
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def read_all(folder: Path = BASE) -> list[dict[str, Any]]:
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    files = [folder / name for name in names if name.endswith(".yaml")]
    return [found for file in files for found in yaml.safe_load_all(file.read_text())]


def find(kind: str, name: str = "legato") -> dict[str, Any]:
    (found,) = [each for each in read_all() if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def test_the_server_may_do_exactly_what_it_does_and_only_in_its_namespace() -> None:
    granted = {
        (resource, verb) for rule in find("Role")["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    used = {("pods", verb) for verb in ("create", "get", "list", "watch", "delete")}
    assert granted == used | {
        ("secrets", "create"),
        ("events", "list"),
        ("configmaps", "get"),
        ("configmaps", "create"),
    }
    assert {each["kind"] for each in read_all()}.isdisjoint({"ClusterRole", "ClusterRoleBinding"})
    # What the code asks for: the second argument of its requests.
    tree = ast.parse(Path(kubernetes.__file__).read_text())
    asked = {
        (node.args[0].value, node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "self._api"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert asked <= granted


def test_only_the_pod_of_the_server_has_a_token_of_the_api_server() -> None:
    assert find("ServiceAccount")["automountServiceAccountToken"] is False
    server = find("StatefulSet")["spec"]["template"]["spec"]
    assert (server["serviceAccountName"], server["automountServiceAccountToken"]) == ("legato", True)
    assert find("RoleBinding")["subjects"] == [{"kind": "ServiceAccount", "name": "legato"}]
    assert find("RoleBinding")["roleRef"]["name"] == "legato"


def test_services_and_policies_choose_the_pods_that_exist() -> None:
    server = find("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    shape = PodShape(pool="a", namespace="legato", image="x", slots=1)
    order = PilotOrder(node="a", url="https://x", token="")
    agent = build_pod(order, shape, Owner("ConfigMap", "a", "u"), "a")["metadata"]["labels"]
    assert find("StatefulSet")["spec"]["selector"]["matchLabels"].items() <= server.items()
    for service in ("legato", "legato-server"):
        assert find("Service", service)["spec"]["selector"].items() <= server.items()
    assert find("NetworkPolicy", "legato-server")["spec"]["podSelector"]["matchLabels"].items() <= server.items()
    assert find("NetworkPolicy", "legato-agent")["spec"]["podSelector"]["matchLabels"].items() <= agent.items()
    (egress,) = read_all(DEPLOY / "components/isolated")
    assert egress["spec"]["podSelector"]["matchLabels"].items() <= agent.items()


def test_volumes_and_mounts_fit_and_the_server_can_write_its_home() -> None:
    spec = find("StatefulSet")["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in server["volumeMounts"]} == set(volumes)
    assert (
        volumes["home"]["persistentVolumeClaim"]["claimName"]
        == find("PersistentVolumeClaim", "legato-home")["metadata"]["name"]
    )
    assert {variable["name"]: variable["value"] for variable in server["env"]}["LEGATO_HOME"].startswith(f"{HOME}/")
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] != 0
    assert server["securityContext"]["readOnlyRootFilesystem"] is True


def test_probes_ask_pages_that_need_no_token_by_a_name_that_the_server_accepts() -> None:
    (server,) = find("StatefulSet")["spec"]["template"]["spec"]["containers"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = server[probe]["httpGet"]
        assert (asked["path"], asked["scheme"]) == (path, "HTTPS")
        assert asked["httpHeaders"][0]["value"] in read_settings(BASE / "legato.toml").allowed_hosts


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("legato.toml")), ids=lambda file: file.parent.name)
def test_the_settings_are_accepted_and_name_what_the_manifests_have(file: Path, tmp_path: Path) -> None:
    settings = read_settings(file)
    found = settings.kubernetes
    assert found is not None
    assert found.namespace == find("Namespace")["metadata"]["name"]
    assert find_url(settings, found, "https://localhost:8765") == "https://legato-server.legato.svc:8765"
    assert found.pod_template == Path("/etc/legato/pod-template.yaml")
    assert read_template(BASE / "pod-template.yaml")
    pytest.importorskip("kubernetes_asyncio")
    (tmp_path / "home-id").write_text("0123456789abcdef\n")
    found = found.model_copy(update={"pod_template": BASE / "pod-template.yaml"})
    make_kubernetes(found, tmp_path, "https://legato-server.legato.svc:8765")


def test_the_image_runs_what_the_manifests_and_agents_run() -> None:
    text = (ROOT / "Containerfile").read_text()
    (server,) = find("StatefulSet")["spec"]["template"]["spec"]["containers"]
    shape = PodShape(pool="a", namespace="legato", image="x", slots=1)
    pod = build_pod(PilotOrder(node="a", url="https://x", token=""), shape, Owner("ConfigMap", "a", "u"), "a")
    assert server["command"] == pod["spec"]["containers"][0]["command"] == ["python", "-P", "-m", "legato.cli"]
    assert 'ENTRYPOINT ["python", "-P", "-m", "legato.cli"]' in text
    user = str(pod["spec"]["securityContext"]["runAsUser"])
    assert f"USER {user}:{user}" in text
    assert f"--uid {user}" in text


def build(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that ``kubectl apply -k`` sends."""
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    built = subprocess.run(["kubectl", "kustomize", str(folder)], env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return list(yaml.safe_load_all(built.stdout))


def find_images(objects: list[dict[str, Any]]) -> set[str]:
    """Return the images of the server's containers, and that of the agents, which is in the settings."""
    spec = next(each for each in objects if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    settings = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["legato.toml"]
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    return {tomllib.loads(settings)["kubernetes"]["image"], *(container["image"] for container in containers)}


@pytest.mark.parametrize("folder", [BASE, OVERLAY], ids=lambda folder: folder.name)
@needs_kubectl
def test_server_and_agents_have_one_image_and_the_rights_go_to_the_servers_account(folder: Path) -> None:
    objects = build(folder)
    assert find_images(objects) == {"registry.example.org/legato:0.1.0"}
    (binding,) = [each for each in objects if each["kind"] == "RoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "legato", "namespace": "legato"}]


@needs_kubectl
def test_a_copy_of_the_overlay_has_its_own_image_and_namespace_and_both_components(tmp_path: Path) -> None:
    """As docs/kubernetes.md says it: everything that a site changes is in its own folder."""
    shutil.copytree(DEPLOY, tmp_path, dirs_exist_ok=True)
    mine = tmp_path / "overlays/mine"
    shutil.copytree(OVERLAY, mine)
    made = yaml.safe_load((mine / "kustomization.yaml").read_text())
    made["namespace"] = "team-a"
    made["images"][0] |= {"newName": "registry.lab/legato", "newTag": "7"}
    made["components"] = [f"../../components/{folder.name}" for folder in COMPONENTS]
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(made))
    text = (mine / "legato.toml").read_text()
    for before, after in (
        ("registry.example.org/legato:0.1.0", "registry.lab/legato:7"),
        ('namespace = "legato"', 'namespace = "team-a"'),
        (".legato.svc", ".team-a.svc"),
    ):
        assert before in text
        text = text.replace(before, after)
    (mine / "legato.toml").write_text(text)
    objects = build(mine)
    assert find_images(objects) == {"registry.lab/legato:7"}
    namespaces = {each["metadata"].get("namespace") for each in objects} - {None}
    namespaces |= {each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"}
    namespaces |= {each["namespace"] for found in objects for each in found.get("subjects", ())}
    assert namespaces == {"team-a"}
    assert {"Secret", "NetworkPolicy"} <= {each["kind"] for each in objects}
    assert sum(each["kind"] == "NetworkPolicy" for each in objects) == 3
