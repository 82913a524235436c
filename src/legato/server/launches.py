"""Makes submissions of runs of training definitions, and of jobs whose program is a command line for a framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from legato.api.projects import Experiment, Parameter
from legato.control.arguments import check_parameters, split_command, split_line
from legato.control.display_names import name_run
from legato.control.project_records import Definition, Distributed, NewDefinition
from legato.control.records import CheckedJob, NewJob
from legato.control.roles import Asker
from legato.control.store import check_is_no_test, check_labels, check_new_job, missing_code
from legato.control.work import Work, check_places, check_work, choose_python, find_data, needs_server, read_work
from legato.core.errors import BadField, UsageError
from legato.core.frameworks import DistributedName, Framework, Wanted
from legato.core.job_user import JobUser
from legato.core.limits import Limits
from legato.engines.cgroups import find_support
from legato.engines.interpreter import find_python
from legato.server.bodies import Submission
from legato.server.frameworks import OWN, OfferedFrameworks, Runtime
from legato.server.isolation import JobUsers, check_submitter
from legato.server.program_imports import find_main, read_imports
from legato.server.services import Services
from legato.server.sweep_bodies import TrialJobBody


@dataclass(frozen=True, kw_only=True)
class RunChanges:
    """Changes to a training definition for one run. None: as in the definition.

    Args:
        priority: of the job.
        parameters: added to those of the definition; the same names replace them.
        labels: of the job.
    """

    priority: int
    min_nodes: int | None = None
    max_nodes: int | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None


def check_definition(
    new: NewDefinition,
    framework: Framework,
    files: Collection[str] | None,
    user: str,
    pythons: Mapping[str, str],
) -> NewJob:
    """Check that a training definition could be run, and return the job that its run would be.

    Args:
        new: the definition.
        framework: the framework that the definition names.
        files: names of the files of its code. None: it has no uploaded code.
        user: the user who creates the definition.
        pythons: the setting ``interpreters``: name → path.

    Raises:
        BadField: a field has an invalid value.
        UsageError: the fields do not fit together.
    """
    if (new.code is None) == (new.directory is None):
        raise BadField("code", "Give either uploaded code or a directory on the nodes.")
    if new.distributed not in framework.distributed:
        kinds = " or ".join(framework.distributed)
        raise BadField(
            "distributed",
            f"The framework '{framework.name}' runs {kinds}, not {new.distributed}. Choose one of these.",
        )
    if new.distributed is Distributed.SINGLE and (new.min_nodes, new.max_nodes) != (1, 1):
        raise BadField("max_nodes", "A single definition has 1 node. For more, make it static or elastic.")
    if new.distributed is Distributed.STATIC and new.min_nodes != new.max_nodes:
        raise BadField(
            "min_nodes", "A static definition has exactly max_nodes. Leave min_nodes out, or make it elastic."
        )
    check_parameters(new.parameters)
    return make_run(new, framework, files, user, RunChanges(priority=1), pythons=pythons)


def make_run(
    definition: NewDefinition,
    framework: Framework,
    files: Collection[str] | None,
    user: str,
    changes: RunChanges,
    *,
    queue: str = "default",
    experiment: Experiment | None = None,
    pythons: Mapping[str, str],
) -> CheckedJob:
    """Return the job that is a run of a definition. Checks it without looking for its queue or its files on the nodes.

    Args:
        definition: the training definition.
        framework: the framework that the definition names.
        files: names of the files of its code. None: it has no uploaded code.
        user: the user who runs it.
        changes: changes for this run.
        queue: the queue of the project.
        experiment: the experiment that this is a run of. None: of no experiment.
        pythons: the setting ``interpreters``: name → path.

    Raises:
        UsageError: the definition cannot be run with these changes.
    """
    name = name_run(None if experiment is None else experiment.name, definition.name)
    min_nodes, max_nodes = _count_nodes(definition, changes)
    data = None if experiment is None else experiment.data
    words = split_command(definition.command)
    if experiment is not None:
        words += split_line("arguments", experiment.arguments)
    prepared = framework.prepare(
        Wanted(
            words=words,
            files=files,
            distributed=definition.distributed.value,
            max_nodes=max_nodes,
            user=user,
            name=name,
            data=data,
        )
    )
    check_parameters(changes.parameters)
    work = Work(
        program=prepared.program,
        directory=definition.directory,
        environment=definition.environment,
        data=data,
        seed=definition.seed if changes.seed is None else changes.seed,
        num_threads=definition.num_threads,
        cpu_capability=definition.cpu_capability,
        python=choose_python(definition.python, pythons),
        checkpoint_every=definition.checkpoint_every,
        max_run_s=definition.max_run_s,
        parameters={**definition.parameters, **changes.parameters},
        framework=framework.name,
        launcher=prepared.launcher,
    )
    kept = definition if isinstance(definition, Definition) else None
    new = NewJob(
        name=name,
        spec=msgspec.to_builtins(work),
        min_workers=min_nodes,
        max_workers=max_nodes,
        queue=queue,
        priority=changes.priority,
        is_elastic=definition.distributed is Distributed.ELASTIC,
        max_retries=definition.max_retries,
        labels={**prepared.labels, **changes.labels},
        code=definition.code,
        project=None if kept is None else kept.project,
        experiment=None if experiment is None else experiment.id,
        definition=None if kept is None else kept.id,
    )
    checked = check_new_job(new)
    has_code = definition.code is not None
    check_work(work, name=name, min_workers=min_nodes, max_workers=max_nodes, has_code=has_code)
    return checked


def check_places_here(here: Services, refusal: str, new: NewJob, owner: str) -> None:
    """Check that this machine has the directories and the limits that a job needs, if it is the one that runs jobs.

    Args:
        here: the server.
        refusal: the beginning of the error's text.
        new: the job.
        owner: the owner of the job.

    Raises:
        UsageError: something that the job needs is missing.
    """
    if not here.loop.starts_drivers:
        return
    work, where = read_work(new.spec), "the machine that runs it"
    try:
        check_submitter(here.settings, owner, refusal)
        needs = any(place is not None for place in (work.directory, work.data, work.python))
        user = JobUsers(here.settings, here.store, here.now)(owner) if needs else None
        check_places(refusal, where, directory=work.directory, program=work.script, data=work.data, user=user)
        if work.python is not None:
            _check_python(refusal, work.python, user)
        _check_limits(work, here, refusal)
    except UsageError:
        # Checked only on an error, because it reads the store, and errors are rare.
        if here.leads() and (needs_server(work) or not _has_agents(here)):
            raise


def _has_agents(here: Services) -> bool:
    """Return whether the pool has machines with agents, which may have what this machine does not have."""
    return any(agent.left_at is None for agent in here.store.agents.list())


def check_data_here(here: Services, refusal: str, data: str | None, owner: str) -> None:
    """Check that a data directory can be used, and that it exists if this machine is the one that runs jobs.

    Args:
        here: the server.
        refusal: the beginning of the error's text.
        data: as the user names it. None: no data.
        owner: the owner of the jobs that need it.

    Raises:
        BadField: there is no such directory, or ``owner``'s jobs cannot see it.
    """
    data = find_data(data, here.settings.wmla_data_path)
    if data is None or not here.loop.starts_drivers:
        return
    try:
        user = JobUsers(here.settings, here.store, here.now)(owner)
        check_places(refusal, "the machine that runs it", directory=None, program=None, data=data, user=user)
    except UsageError:
        if here.leads() and not _has_agents(here):
            raise


def warn_of_limits(here: Services, new: NewJob) -> str | None:
    """Return the warning for a job that runs although this machine cannot enforce its limits. None: no warning."""
    work = read_work(new.spec)
    if work.must_limit or not here.loop.starts_drivers:
        return None
    why_not = _find_why_not_limited(work, here)
    if why_not is None or not here.leads():
        return None
    return f"The job runs without its limits of memory and CPU cores: {why_not}."


def _check_python(refusal: str, python: str, user: JobUser | None) -> None:
    """Raise BadField if there is no such Python. The driver checks at its start whether workers can run with it."""
    try:
        find_python(python, user)
    except UsageError as error:
        raise BadField("python", f"{refusal}. {error}") from error


def _check_limits(work: Work, here: Services, refusal: str) -> None:
    """Raise BadField if this machine cannot enforce the limits that a job must have."""
    why_not = _find_why_not_limited(work, here) if work.must_limit else None
    if why_not is not None:
        raise BadField(
            "num_cpus" if work.memory_bytes is None else "memory_bytes",
            f"{refusal}: {why_not}. Or submit it without memory_bytes and num_cpus, or with must_limit=false: it then "
            "runs without these limits.",
        )


def _find_why_not_limited(work: Work, here: Services) -> str | None:
    """Return why this machine cannot enforce the limits that a job asks for. None: it can, or the job asks for none."""
    if work.memory_bytes is None and work.num_cpus is None:
        return None
    # Includes the default limits of the operator, because the job's driver enforces all limits or none.
    defaults = here.settings.limits
    return find_support().check(
        Limits(
            memory_bytes=defaults.memory_bytes if work.memory_bytes is None else work.memory_bytes,
            num_cpus=defaults.num_cpus if work.num_cpus is None else work.num_cpus,
            num_processes=defaults.num_processes,
        )
    )


def prepare_job(new: CheckedJob, framework: Framework, files: Collection[str] | None, user: str) -> CheckedJob:
    """Return a job whose program is a command line for a framework, with the program and launcher of the framework.

    Args:
        new: the job, as it was submitted.
        framework: the framework that the submission names.
        files: names of the files of its code. None: it has no uploaded code.
        user: the user who submits it.

    Raises:
        BadField: the framework cannot run the job.
        UsageError: with the labels that the framework adds, the job has too many.
    """
    if not new.spec.get("program"):
        raise BadField("program", "The program is empty. Give the words of a command line.")
    distributed = _name_distributed(new, framework)
    if distributed not in framework.distributed:
        kinds = " or ".join(framework.distributed)
        raise BadField(
            "framework",
            f"The framework '{framework.name}' runs {kinds}, not {distributed}. See is_elastic and max_workers.",
        )
    wanted = Wanted(
        words=tuple(new.spec["program"]),
        files=files,
        distributed=distributed,
        max_nodes=new.max_workers,
        user=user,
        name=new.name,
        data=new.spec.get("data"),
    )
    try:
        prepared = framework.prepare(wanted)
    except BadField as error:
        # Frameworks name the field of a training definition, ``command``; that of a job is ``program``.
        raise BadField("program" if error.field == "command" else error.field, str(error)) from error
    spec = {**new.spec, "program": list(prepared.program), "framework": framework.name}
    if prepared.launcher is not None:
        spec["launcher"] = msgspec.to_builtins(prepared.launcher)
    labels = {**prepared.labels, **(new.labels or {})}
    if labels != new.labels:
        check_labels(f"submit job '{new.name}'", labels)
        check_is_no_test(f"submit job '{new.name}'", labels)
    return msgspec.structs.replace(new, spec=spec, labels=labels)


def _name_distributed(new: NewJob, framework: Framework) -> DistributedName:
    if new.max_workers == 1 and not (new.is_elastic and "elastic" in framework.distributed):
        return "single"
    return "elastic" if new.is_elastic else "static"


def find_files(sha256: str | None, here: Services, asker: Asker) -> tuple[str, ...] | None:
    """Return the names of the files of uploaded code. None: ``sha256`` is None.

    Raises:
        NotFound: the code is not stored, or the asker may not use it.
        UsageError: ``sha256`` is not a SHA-256.
    """
    if sha256 is None:
        return None
    here.store.uploads.get(sha256, asker)
    if not here.code.has(sha256):
        raise missing_code(sha256)
    return here.code.names.list(sha256)


def choose_framework(
    fields: Submission | TrialJobBody, here: Services, asker: Asker, frameworks: OfferedFrameworks
) -> tuple[Framework | None, str | None]:
    """Return the framework of a submission, and a notice for its user; None: a Python script, no notice.

    If the submission names none, it is the framework that a plugin added for programs such as this one.

    Raises:
        BadField: there is no such framework, or the runtime has no package here.
        NotFound: the code is not stored, or the asker may not use it.
    """
    name = fields.framework
    if name is not None and Runtime.read(name) is None:
        return frameworks.find(name), None
    if name is None and fields.directory is not None:
        return None, None
    imports = read_imports_of(fields.program, fields.code, here, asker)
    if name is not None:
        return frameworks.choose(name, imports)
    found = frameworks.recognise(imports)
    return found, None if found is None else (
        f"The program imports a module of '{found.name}' ({found.title}), so this framework runs it. To run it as a "
        f"Python script, name the framework '{OWN[0].name}'."
    )


def read_imports_of(words: Sequence[str], code: str | None, here: Services, asker: Asker) -> frozenset[str]:
    """Return the modules that the program of a command line imports, as far as it was uploaded. Errors as above."""
    files = find_files(code, here, asker)
    if files is None or code is None:
        return frozenset()
    main = find_main(words, files)
    return frozenset() if main is None else read_imports(here.code.path / code, main, files)


def _count_nodes(definition: NewDefinition, changes: RunChanges) -> tuple[int, int]:
    """Return the minimum and the maximum number of nodes of a run."""
    low, high = changes.min_nodes, changes.max_nodes
    if low is None and high is None:
        return definition.min_nodes, definition.max_nodes
    if definition.distributed is Distributed.SINGLE and {low, high} - {None, 1}:
        raise BadField("max_nodes", f"'{definition.name}' is single: it has 1 node. Leave the number of nodes out.")
    max_nodes = definition.max_nodes if high is None else high
    if definition.distributed is not Distributed.ELASTIC:
        if low not in (None, max_nodes):
            raise BadField(
                "min_nodes", f"'{definition.name}' is static: it has exactly max_nodes. Leave min_nodes out."
            )
        return max_nodes, max_nodes
    return min(definition.min_nodes, max_nodes) if low is None else low, max_nodes
