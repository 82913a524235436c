"""`elasticdl train` with a cluster of Kubernetes: finds the cluster, and creates the pod of the job's master."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from legato.client.servers import SERVER_VARIABLE, find_file, find_local, read_known
from legato.clusters.kubernetes_api import CONFLICT, KubernetesApi, KubernetesAway, KubernetesRefusal, check_library
from legato.compat.elasticdl.arguments import ParsedCommand
from legato.compat.elasticdl.manifests import name_master, render_master, write_arguments
from legato.compat.elasticdl.pods_job import check_for_pods, make_checked_job
from legato.core.errors import LegatoError, UsageError

_CONFIG: Final = "KUBECONFIG"
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_HOST: Final = "KUBERNETES_SERVICE_HOST"


class Cluster(NamedTuple):
    """The way to a cluster.

    Args:
        kubeconfig: the file, or several with colons between; None: this process is in a pod of the cluster.
    """

    kubeconfig: Path | None


def find_cluster(asked: ParsedCommand, environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return the cluster in which a job runs; None: a server of Legato runs it.

    It is the first of these that there is: the kubeconfig, if ``--force_use_kube_config_file`` asks for it; the server
    of ``LEGATO_SERVER``; the kubeconfig of ``KUBECONFIG``; the server of `legato login`, or the one on this machine;
    ``~/.kube/config``; the cluster of this pod.

    Raises:
        UsageError: a kubeconfig is asked for, and there is none.
    """
    said = environment.get(_CONFIG, "")
    default = Path(environment.get("HOME") or "~").expanduser() / ".kube/config"
    if asked.values.get("force_use_kube_config_file"):
        if not said and not default.is_file():
            raise UsageError(f"There is no {default}, which --force_use_kube_config_file asks for. Set {_CONFIG}.")
        return Cluster(Path(said) if said else default)
    if environment.get(SERVER_VARIABLE):
        return None
    if said:
        return Cluster(Path(said))
    if read_known(find_file(environment)).current or find_local(environment):
        return None
    if default.is_file():
        return Cluster(default)
    return Cluster(None) if environment.get(_HOST) and _ACCOUNT.is_file() else None


def make_master(asked: ParsedCommand, notice: Callable[[str], None]) -> dict[str, Any]:
    """Return the pod of a job's master.

    Args:
        asked: the command.
        notice: takes sentences for the user.

    Raises:
        UsageError: the job cannot run as pods.
    """
    for sentence in check_for_pods(asked):
        notice(sentence)
    return render_master(make_checked_job(asked), write_arguments(asked))


def submit(asked: ParsedCommand, cluster: Cluster, tell: Callable[[str], None], notice: Callable[[str], None]) -> None:
    """Create the pod of a job's master, and write the lines that scripts look for.

    Raises:
        LegatoError: it cannot be created.
    """
    check_library()
    pod = make_master(asked, notice)
    where = "the cluster of this pod" if cluster.kubeconfig is None else f"the cluster of {cluster.kubeconfig}"
    forced = asked.values.get("force_use_kube_config_file")
    how = "leave --force_use_kube_config_file out, and " if forced else ""
    notice(f"The job runs on {where}. To use a server of Legato instead, {how}name it in {SERVER_VARIABLE}.")
    tell("Load the incluster config." if cluster.kubeconfig is None else "Load the kube config file.")
    asyncio.run(_create(asked, cluster, pod))
    name, master, namespace = asked.text("job_name"), pod["metadata"]["name"], asked.text("namespace")
    inside = "" if namespace == "default" else f" --namespace {namespace}"
    tell("Master launched.")
    tell(f"ElasticDL job {name} was successfully submitted. The master pod is: {master}.")
    tell(
        f"It runs on Kubernetes, with {asked.text('num_workers')} worker pods. Next:\n"
        f"  kubectl get pods{inside} --selector elasticdl-job-name={name}   master and workers\n"
        f"  kubectl logs{inside} -f {master}   what happens to the job\n"
        f"  kubectl delete pod{inside} {master}   end the job"
    )


async def _create(asked: ParsedCommand, cluster: Cluster, pod: dict[str, Any]) -> None:
    api = KubernetesApi(asked.text("namespace"), kubeconfig=cluster.kubeconfig)
    name = name_master(make_checked_job(asked))
    failure = f"Cannot submit job {asked.text('job_name')} to Kubernetes"
    try:
        await api.create("pods", pod)
    except KubernetesRefusal as error:
        if error.code != CONFLICT:
            raise LegatoError(f"{failure}: {error}.") from error
        found = await api.get("pods", name) or {}
        phase = found.get("status", {}).get("phase", "Unknown")
        raise UsageError(
            f"{failure}: pod {name} exists already ({phase}). Delete it with 'kubectl delete pod {name}', which also "
            "ends its workers, or choose another --job_name."
        ) from error
    except KubernetesAway as error:
        raise LegatoError(f"{failure}: {error}.") from error
    finally:
        await api.close()
