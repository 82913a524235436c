"""The `elasticdl` command: submits training jobs to Legato. Messages go to stderr, as in the original.

Decides nothing: `arguments` and `ordering` do. Exit codes: 0: done; 1: the command failed, or there is no command; 2:
the words are invalid.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from legato.compat.elasticdl.arguments import (
    HelpAsked,
    InvalidArguments,
    ParsedCommand,
    explain_unknown,
    read_arguments,
    render_help,
)
from legato.core.errors import LegatoError, NotFound, UsageError

if TYPE_CHECKING:
    from legato.client.client import Client
    from legato.client.packing import Packed
    from legato.compat.elasticdl.cluster_command import Cluster
    from legato.compat.elasticdl.ordering import Order

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130

_PATIENCE_S: Final = 60.0
_FIRST_PATIENCE_S: Final = 2.0
_MAX_CODE_BYTES: Final = 2**30
_MANY_BYTES: Final = 10 * 2**20
_NOT_ENDED: Final = ("queued", "starting", "running", "pausing", "paused", "stopping")
_EVENTS: Final = 100_000


def main(words: Sequence[str] | None = None) -> int:
    """Carry a command out, and return its exit code.

    Args:
        words: after `elasticdl`. None: those of this process.
    """
    said = list(sys.argv[1:] if words is None else words)
    if not said:
        tell(render_help())
        return FAILED
    try:
        return _carry_out(read_arguments(said))
    except HelpAsked as asked:
        sys.stdout.write(str(asked))
        return DONE
    except InvalidArguments as error:
        tell(str(error))
        return MISUSED
    except LegatoError as error:
        tell(f"elasticdl: error: {error}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return FAILED


def run() -> None:
    """Run the program `elasticdl`."""
    # The reader of the listing may close the pipe, as `head`.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())


def tell(text: str) -> None:
    """Write to the standard error."""
    sys.stderr.write(text.rstrip("\n") + "\n")


def _carry_out(asked: ParsedCommand) -> int:
    for sentence in explain_unknown(asked):
        _notice(sentence)
    if asked.command == "train":
        return _train(asked)
    if asked.command == "pods":
        return _list_pods(asked)
    if asked.command.startswith("zoo "):
        from legato.compat.elasticdl.zoo import run_docker, write_dockerfile

        if asked.command != "zoo init":
            return run_docker(asked)
        for sentence in write_dockerfile(asked, Path.cwd()):
            tell(sentence)
        return DONE
    raise UsageError(
        f"'elasticdl {asked.command}' is not supported: it needs a model of the Keras job service. Load the checkpoint "
        f"of a job in your own program ('legato download JOB'), which 'legato submit' or 'elasticdl train' runs, "
        f"and {asked.command} there; evaluation over all workers is run.evaluate (docs/api.md)."
    )


def _notice(sentence: str) -> None:
    tell(f"elasticdl: notice: {sentence}")


# ---------------------------------------------------------------- train


def _train(asked: ParsedCommand) -> int:
    from legato.compat.elasticdl.ordering import check_values, make_order, name_image, with_python

    check_values(asked)
    if asked.text("yaml"):
        return _write_manifest(asked)
    if (cluster := _find_cluster(asked)) is not None:
        from legato.compat.elasticdl.cluster_command import submit

        submit(asked, cluster, tell, _notice)
        return DONE
    order = make_order(asked, Path.cwd())
    with _open_client() as client:
        _check_here(client, order)
        _check_name(client, order.name)
        if name_image(asked):
            order = with_python(order, asked, {one.name for one in client.interpreters()})
        job = _submit(client, order)
        for sentence in order.notices:
            _notice(sentence)
        # The lines that scripts look for.
        tell("Master launched.")
        tell(
            f"ElasticDL job {order.name} was successfully submitted. The master pod is: elasticdl-{order.name}-master."
        )
        tell(
            f"On Legato it is job {job.id} of {client.server.url}, with {_describe_workers(order)}. Next:\n"
            f"  elasticdl pods --job_name {order.name}   master and workers, as 'kubectl get pods' shows them\n"
            f"  legato ps, legato explain {order.name}   what it has, and why\n"
            f"  legato logs {order.name} -f   what its workers print; legato attach {order.name}: until it ends\n"
            f"  legato scale {order.name} N, legato stop {order.name}   another number of workers; its end"
        )
    return DONE


def _find_cluster(asked: ParsedCommand) -> Cluster | None:
    from legato.compat.elasticdl.cluster_command import find_cluster

    return find_cluster(asked)


def _describe_workers(order: Order) -> str:
    options = order.options
    if not options["is_elastic"]:
        return f"exactly {options['max_workers']} workers"
    return f"{options['min_workers']} to {options['max_workers']} workers"


def _open_client() -> Client:
    from legato.client.client import Client

    return Client(patience_s=_PATIENCE_S, first_patience_s=_FIRST_PATIENCE_S)


def _check_here(client: Client, order: Order) -> None:
    from legato.client.servers import is_loopback
    from legato.compat.elasticdl.ordering import check_folders

    if is_loopback(client.server.url):
        check_folders(order.host_folders)
    elif order.host_folders:
        folders = ", ".join(volume.folder for volume in order.host_folders)
        _notice(f"{folders} must exist on the nodes of {client.server.url}. Legato did not check that.")


def _check_name(client: Client, name: str) -> None:
    """Refuse a name that is in use, as Kubernetes would: so that no user submits the same job twice by mistake."""
    own = client.me().name
    found = next((job for job in client.jobs(stage=_NOT_ENDED, owner=own, name=name) if job.name == name), None)
    if found is not None:
        raise UsageError(
            f"A job {name} exists already ({found.id}, {found.stage}). Choose another --job_name, or stop that one "
            f"with 'legato stop {name}'."
        )


def _submit(client: Client, order: Order) -> Any:
    from legato.client.packing import pack

    packed = pack(order.folder, max_bytes=_MAX_CODE_BYTES, leave_out=order.left_out)
    client.upload(packed, lambda sent: _announce_upload(order.folder, sent))
    from legato.compat.elasticdl.framework import NAME

    first, *rest = order.words
    return client.submit(first, *rest, code=packed.sha256, framework=NAME, **order.options)


def _announce_upload(folder: Path, packed: Packed) -> None:
    if len(packed.content) >= _MANY_BYTES:
        _notice(
            f"Uploads {len(packed.names)} files of {folder}, {len(packed.content) // 2**20} MiB packed. To "
            "exclude files that the program does not need, list them in .legatoignore."
        )


# ---------------------------------------------------------------- the manifest


def _write_manifest(asked: ParsedCommand) -> int:
    import msgspec

    from legato.compat.elasticdl.cluster_command import make_master

    name, file = asked.text("job_name"), Path(asked.text("yaml"))
    try:
        file.write_bytes(msgspec.yaml.encode(make_master(asked, _notice), order="sorted"))
    except OSError as error:
        raise UsageError(f"Cannot write {file}: {error.strerror or error}. Name another file with --yaml.") from error
    tell(f"ElasticDL job {name} YAML has been dumped into file {file}.")
    _notice(f"It is the pod of the job's master. 'kubectl create -f {file}' starts the job.")
    return DONE


# ---------------------------------------------------------------- pods


def _list_pods(asked: ParsedCommand) -> int:
    from legato.compat.elasticdl.ordering import APP_LABELS
    from legato.compat.elasticdl.pods import list_pods, render_pods

    if _find_cluster(asked) is not None:
        raise UsageError(
            "'elasticdl pods' lists jobs of a server of Legato, and a kubeconfig is used here. List the pods of the "
            "cluster with: kubectl get pods --selector app=elasticdl"
        )
    name = asked.text("job_name")
    stages = None if name or asked.switch("all") else _NOT_ENDED
    with _open_client() as client:
        jobs = list(client.jobs(labels=APP_LABELS, stage=stages, name=name or None))
        if name:
            jobs = [job for job in jobs if job.name == name][:1]
            if not jobs:
                raise NotFound(f"There is no job {name} of 'elasticdl train'. 'elasticdl pods --all yes' lists all.")
        pods = [pod for job in reversed(jobs) for pod in list_pods(job.record, job.training_events(), time.time())]
    if not pods:
        tell("No resources found: no job of 'elasticdl train' runs. 'elasticdl pods --all yes' lists those that ended.")
        return DONE
    sys.stdout.write(render_pods(pods) + "\n")
    return DONE


if __name__ == "__main__":
    run()
