"""TensorBoard in an elastic job: `SummaryWriter` of this module replaces `torch.utils.tensorboard.SummaryWriter`.

Programs call it on every worker; one worker writes the event files. Each record carries the place of its call, by which
the worker that writes next continues.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from legato.core.errors import UsageError
from legato.integrations.single_writer import MetricsCallback, Place, SingleWriter, hide_login
from legato.train.loop.elastic import Run

try:
    from tensorboard.compat.proto.event_pb2 import Event, SourceMetadata
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    from torch.utils import tensorboard
    from torch.utils.tensorboard._utils import figure_to_image
except ImportError as error:
    raise UsageError(
        f"legato.integrations.tensorboard cannot be imported: {error}. Install the package that it needs: "
        "pip install 'legato[tensorboard]'"
    ) from error

_SUFFIX: Final = ".legato"
_LENGTH: Final = struct.Struct("<QI")
"""Before each record of an event file: its length and the checksum of that; after it comes a checksum of 4 bytes."""
_MOST_DAMAGED: Final = 1000
_LONGEST_WAIT_S: Final = 2.0


class SummaryWriter(SingleWriter):
    """Writes event files like `torch.utils.tensorboard.SummaryWriter`, once for all workers of a job.

    It has all ``add_...`` methods of that class, with the same arguments; call them on every worker. Everything is on
    disk when a call returns. Where the number of workers changes, it writes the scalar ``legato/num_workers`` and the
    text ``legato/resizes``.

    Args:
        run: of the program, before training begins.
        log_dir: directory of the event files, the same on all workers and on a disk that they share; no other writer's.

    Raises:
        ProgramError: training has begun.
    """

    name = "TensorBoard"

    def __init__(self, run: Run, log_dir: str | Path) -> None:
        if not isinstance(run, Run):
            raise UsageError(
                f"SummaryWriter needs the run as its first argument, not {run!r}: SummaryWriter(run, 'runs/digits')."
            )
        self.log_dir = str(log_dir)
        if "://" in self.log_dir:
            raise UsageError(
                f"SummaryWriter cannot write to {hide_login(self.log_dir)}. Pass a directory on a disk that all "
                "workers share, and copy it there after the training."
            )
        self._writer: Any = None
        self._has_record = False
        super().__init__(run)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("add_") or not callable(getattr(tensorboard.SummaryWriter, name, None)):
            raise AttributeError(f"'SummaryWriter' has no attribute '{name}'")
        return functools.partial(self._call, self._write, name)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Write a picture of Matplotlib, or a list of them; every worker draws it now, and closes the figure."""
        image = figure_to_image(figure, close)
        add = self.add_images if isinstance(figure, list) else self.add_image
        add(tag, image, global_step, walltime, dataformats="NCHW" if isinstance(figure, list) else "CHW")

    def get_logdir(self) -> str:
        """Return the directory of the event files."""
        return self.log_dir

    def flush(self) -> None:
        """Do nothing: each call has written to disk when it returns."""

    def close(self) -> None:
        """Close the event file, if this worker writes it. Later calls, and the end of the program, open a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._guarded():
                writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ the worker that writes

    def _open(self) -> Place | None:
        written = find_last_place(Path(self.log_dir), self._id)
        # What an earlier job has left in this directory is hidden, not deleted.
        self._make_writer(purge_step=0 if written is None else None)
        return written

    def _make_writer(self, purge_step: int | None = None) -> None:
        _wait_for_a_later_name(Path(self.log_dir))
        self._writer = tensorboard.SummaryWriter(self.log_dir, purge_step=purge_step, filename_suffix=_SUFFIX)

    def _write(self, name: str, *arguments: Any, **named: Any) -> None:
        self._has_record = False
        with self._marked(self._writing):
            getattr(self._writer, name)(*arguments, **named)
            if not self._has_record:
                # It has written other files, such as add_scalars.
                self._writer.flush()
                self._writer.file_writer.add_event(Event())
        self._writer.flush()

    def _write_resize(self, num_workers: int) -> None:
        step = self._run.step
        workers = "1 worker trains" if num_workers == 1 else f"{num_workers} workers train"
        # The mark is that of the call before, which has been written.
        with self._marked(self._written):
            self._writer.add_scalar("legato/num_workers", num_workers, step)
            self._writer.add_text("legato/resizes", f"After step {step}: {workers}.", step)
        self._writer.flush()

    @contextlib.contextmanager
    def _marked(self, place: Place | None) -> Iterator[None]:
        """Give the records that are written meanwhile the place of a call."""
        if self._writer is None:
            self._make_writer()
        file_writer = self._writer.file_writer
        add_event = type(file_writer).add_event

        def add(event: Any, step: Any = None, walltime: float | None = None) -> None:
            self._has_record = True
            event.source_metadata.CopyFrom(SourceMetadata(writer=_mark(self._id, place)))
            add_event(file_writer, event, step, walltime)

        file_writer.add_event = add
        try:
            yield
        finally:
            del file_writer.add_event

    def _close(self) -> None:
        self.close()


class TensorBoardCallback(MetricsCallback):
    """Writes what `legato.Trainer` trains: ``loss`` after each step; after each epoch ``epoch_loss`` and ``val_...``.

    Args:
        log_dir: as in `SummaryWriter`.
    """

    def __init__(self, log_dir: str | Path) -> None:
        self._log_dir = log_dir
        self._writer: SummaryWriter | None = None

    def begin(self, run: Run) -> None:
        """Make the writer."""
        self._writer = SummaryWriter(run, self._log_dir)

    def write(self, values: dict[str, float], step: int) -> None:
        """Write each value as a scalar."""
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def end(self) -> None:
        """Close the file."""
        assert self._writer is not None
        self._writer.close()


def find_last_place(log_dir: Path, log: str) -> Place | None:
    """Return the place of the last call that is written in a directory; None if there is none.

    Args:
        log_dir: with event files.
        log: identifies the log of a job among those in the directory.
    """
    places = [place for path in _files(log_dir) if (place := _read_place(path, log)) is not None]
    return max(places, default=None)


def _files(log_dir: Path) -> list[Path]:
    return sorted(log_dir.glob(f"events.out.tfevents.*{_SUFFIX}"))


def _read_place(path: Path, log: str) -> Place | None:
    """Return the mark of the last whole record of a file: a worker may have been killed, or lost power, meanwhile."""
    found: deque[tuple[int, int]] = deque(maxlen=_MOST_DAMAGED)
    with path.open("rb") as file:
        size, position = path.stat().st_size, 0
        while position + _LENGTH.size <= size:
            file.seek(position)
            length, _ = _LENGTH.unpack(file.read(_LENGTH.size))
            end = position + _LENGTH.size + length + 4
            if length == 0 or end > size:
                break
            found.append((position, end))
            position = end
        for begin, end in reversed(found):
            file.seek(begin)
            if (record := _check(file.read(end - begin))) is not None:
                words = Event.FromString(record).source_metadata.writer.split()
                return (int(words[2]), int(words[3])) if words[:2] == ["legato", log] else None
    return None


def _check(record: bytes) -> bytes | None:
    """Return the content of a record; None if it is not as it was written."""
    content, ends = record[_LENGTH.size : -4], (record[8:12], record[-4:])
    sums = tuple(masked_crc32c(part).to_bytes(4, "little") for part in (record[:8], content))
    return content if sums == ends else None


def _mark(log: str, place: Place | None) -> str:
    step, number = place or (0, 0)
    return f"legato {log} {step} {number}"


def _wait_for_a_later_name(log_dir: Path) -> None:
    """Wait until a new file comes after the others by its name, as TensorBoard reads them; names have whole seconds."""
    newest = max((int(path.name.split(".")[3]) for path in _files(log_dir)), default=0)
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while time.time() < newest + 1 and time.monotonic() < deadline:
        time.sleep(0.01)
