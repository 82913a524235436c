"""The log of a training: an entry for each micro-batch, validation and saved model, in their order. Sends nothing.

The log is part of the job's state and its numbers are exact, so every worker has the same log. It keeps only running
sums and the last entries; the log replayer has written older entries to the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from legato.compat.wmla.names import POINT_BATCHES

Entry = dict[str, Any]
"""Has ``n``: its number, from 1; ``kind``: train, test or saved; ``epoch``: from 0; ``iteration``: number of
micro-batches of the job so far; ``workers``: number of workers that compute; ``metrics``: by name, loss first."""

_NUM_KEPT: Final = 6


class TrainingLog:
    """The metrics of the present epoch, and the last entries.

    Args:
        num_samples: number of samples in an epoch.
        batch_size: number of samples in a micro-batch; the last one of an epoch may have fewer.
        num_engines: number of micro-batches in a step, which is also the maximum number of workers that compute.
    """

    # The class's former name, which is part of the fingerprint in stored checkpoints; see `TrainingState.fingerprint`.
    __qualname__ = "Diary"

    def __init__(self, num_samples: int, batch_size: int, num_engines: int) -> None:
        self._num_samples, self._batch_size = num_samples, batch_size
        self._num_engines = num_engines
        self.epoch = 0
        self.num_entries = 0
        self.num_batches = 0
        self.num_batches_of_epoch = 0
        self.num_samples_seen = 0
        self._num_batches_before = 0
        self._sums: dict[str, float] = {}
        # Each list has the entries that were added together; the replayer reads them at most one step later.
        self._kept: list[list[Entry]] = []

    @property
    def is_live(self) -> bool:
        """Whether the log has a step. The log of a new worker has none until the worker receives the job's state."""
        return self.num_batches > 0

    @property
    def is_at_point(self) -> bool:
        """Whether the last step was the job's first, or completed another 50 micro-batches."""
        before = self._num_batches_before
        return not before or before // POINT_BATCHES < self.num_batches // POINT_BATCHES

    @property
    def is_at_end(self) -> bool:
        """Whether the last step was the epoch's last."""
        return self.num_samples_seen >= self._num_samples

    @property
    def averages(self) -> dict[str, float]:
        """Mean of each metric over all samples of the epoch so far."""
        return {name: total / self.num_samples_seen for name, total in self._sums.items()}

    def recent(self, last: int) -> list[Entry]:
        """Return the entries after number ``last``, as far as the log still has them."""
        return [entry for entries in self._kept for entry in entries if entry["n"] > last]

    # ------------------------------------------------------------ new entries

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch, with new averages."""
        self.epoch, self._sums = epoch, {}
        self.num_batches_of_epoch = self.num_samples_seen = 0

    def add_step(self, notes: Mapping[str, Sequence[float]], num_workers: int) -> None:
        """Add the micro-batches of a step.

        Args:
            notes: for each metric, the means over the micro-batches of the step, in their order.
            num_workers: present number of workers of the job.
        """
        entries = []
        self._num_batches_before = self.num_batches
        for index in range(max(map(len, notes.values()), default=0)):
            num_samples = min(self._batch_size, self._num_samples - self.num_batches_of_epoch * self._batch_size)
            self.num_batches += 1
            self.num_batches_of_epoch += 1
            self.num_samples_seen += num_samples
            for name in sorted(notes, key=lambda name: (name != "loss", name)):
                self._sums[name] = self._sums.get(name, 0.0) + notes[name][index] * num_samples
            entries.append(self._make("train", num_workers, self.averages))
        self._keep(entries)

    def add_test(self, metrics: Mapping[str, float], num_workers: int) -> None:
        """Add a validation."""
        self._keep([self._make("test", num_workers, dict(metrics))])

    def add_saved(self, num_workers: int) -> None:
        """Add an entry for the saved model of this epoch."""
        self._keep([self._make("saved", num_workers, {})])

    def count_working(self, num_workers: int) -> int:
        """Return how many of ``num_workers`` workers compute micro-batches."""
        return min(num_workers, self._num_engines)

    def _make(self, kind: str, num_workers: int, metrics: dict[str, float]) -> Entry:
        self.num_entries += 1
        return {
            "n": self.num_entries,
            "kind": kind,
            "epoch": self.epoch,
            "iteration": self.num_batches,
            "workers": self.count_working(num_workers),
            "metrics": metrics,
        }

    def _keep(self, entries: list[Entry]) -> None:
        self._kept.append(entries)
        del self._kept[:-_NUM_KEPT]

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return the log as part of the job's state."""
        return {
            "epoch": self.epoch,
            "num_entries": self.num_entries,
            "num_batches": self.num_batches,
            "num_batches_of_epoch": self.num_batches_of_epoch,
            "num_samples_seen": self.num_samples_seen,
            "sums": dict(self._sums),
            "kept": [list(entries) for entries in self._kept],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for name in ("epoch", "num_entries", "num_batches", "num_batches_of_epoch", "num_samples_seen"):
            setattr(self, name, state[name])
        self._sums = dict(state["sums"])
        self._kept = [list(entries) for entries in state["kept"]]
