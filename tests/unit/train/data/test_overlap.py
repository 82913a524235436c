"""With ``num_workers="auto"`` a process loads ahead only if that saves time, and never if it could change a batch."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, get_worker_info

from legato.core.errors import DataError
from legato.train.data import overlap as overlap_module
from legato.train.data.dataset_state import DatasetState
from legato.train.data.loader import Loader
from legato.train.data.order import Key, Layout, Order
from legato.train.data.overlap import NUM_MEASURED, Overlap, StrictSigner, find_obstacle_here

ORDER = Order(80, Layout(4, 2), seed=3)
KEYS = [Key(0, step, index) for step in range(20) for index in range(2)]
STARTED_AFTER = NUM_MEASURED + 2  # the first load has no step before it, and the last one shows what reading changes
FACTOR = 1.0
SETTINGS = SimpleNamespace(bias=0.0)


class Rows(Dataset[Any]):
    """Its samples depend on all kinds of things that a program may change."""

    shift = 0.0
    shifts: ClassVar = [0.0]

    def __init__(self) -> None:
        self.scale = 1.0
        self.offsets = np.zeros(4)
        self.tensor = torch.zeros(80)
        self.files = [(f"{number}.png", number) for number in range(80 * 1000)]
        self.nested = [[0.0], {"deep": [0.0]}]
        self.transform: Callable[[float], float] = Times(1.0)
        self.method = Times(1.0).apply
        self.slotted = Slotted()

    def __len__(self) -> int:
        return 80

    def __getitem__(self, number: int) -> torch.Tensor:
        value = self.scale * self.files[number][1] + self.offsets[number % 4] + float(self.tensor[number]) + self.shift
        value += self.slotted.bias + self.nested[0][0] + self.nested[1]["deep"][0] + self.shifts[0]  # type: ignore[index, call-overload]
        return torch.tensor(self.method(self.transform(float(value)))) + torch.rand(())


class Slotted:
    __slots__ = ("__dict__", "bias")

    def __init__(self) -> None:
        self.bias = 0.0


class Times:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, value: float) -> float:
        return self.apply(value)

    def apply(self, value: float) -> float:
        return value * self.factor * scaled(1.0)


CALL = Times.__call__


def scaled(value: float) -> float:
    return value * FACTOR + SETTINGS.bias


class Said:
    """What a loader says, and clocks by which loading takes half of the time."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.seconds = itertools.count(step=1.0)

    def overlap(self, dataset: Dataset[Any], **options: Any) -> Overlap:
        options = {"clock": self.clock, "find_obstacle": lambda *_: None, "num_workers": lambda: 1} | options
        return Overlap(dataset, None, say=self.texts.append, **options)

    def clock(self) -> float:
        return float(next(self.seconds))


def make_loader(dataset: Dataset[Any], said: Said | None = None, **options: Any) -> Loader:
    loader = Loader(dataset, ORDER, seed=3, overlap=None if said is None else said.overlap(dataset, **options))
    loader.begin_pass()
    loader.follow(iter(KEYS))
    return loader


def take_all(loader: Loader) -> Iterator[Any]:
    while True:
        try:
            key, batch = loader.take()
        except StopIteration:
            return
        yield key, batch.tolist()


def is_ahead(loader: Loader) -> bool:
    return loader._processes is not None


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let comparing count as cheap, however busy the machine is: only the clock of the test counts."""
    monkeypatch.setattr(overlap_module, "_MAX_COMPARING", 1e9)
    monkeypatch.setattr(overlap_module, "_LONGEST_COMPARING_S", 60.0)


# ---------------------------------------------------------------- the same batches


def test_a_process_loads_the_same_batches_ahead() -> None:
    want = list(take_all(make_loader(Rows())))
    said = Said()
    with closing(make_loader(Rows(), said)) as loader:
        got = [loader.take() for _ in range(STARTED_AFTER)]
        assert is_ahead(loader)
        got += [loader.take() for _ in range(len(KEYS) - STARTED_AFTER)]
        with pytest.raises(StopIteration):
            loader.take()
        assert [(key, batch.tolist()) for key, batch in got] == want
        assert [text[:25] for text in said.texts] == ["Loading takes 50% of the "]
        loader.begin_pass()
        loader.follow(iter(KEYS))
        assert list(take_all(loader)) == want
        assert is_ahead(loader)


def set_global(_: Rows) -> None:
    global FACTOR  # noqa: PLW0603 - the change under test
    FACTOR = 3.0


CHANGES: dict[str, Callable[[Rows], Any]] = {
    "an attribute": lambda rows: setattr(rows, "scale", 7.0),
    "an element of an array": lambda rows: rows.offsets.__setitem__(2, 3.0),
    "an element of a tensor": lambda rows: rows.tensor[3:40].add_(1),
    "an item of a long list": lambda rows: rows.files.__setitem__(slice(0, 80), [("x", 1)] * 80),
    "an item of a list in a list": lambda rows: rows.nested[0].__setitem__(0, 2.0),  # type: ignore[index]
    "an item deep inside": lambda rows: rows.nested[1]["deep"].__setitem__(0, 2.0),  # type: ignore[call-overload]
    "an attribute of a transform": lambda rows: setattr(rows.transform, "factor", 5.0),
    "another transform": lambda rows: setattr(rows, "transform", abs),
    "the owner of a method": lambda rows: setattr(rows.method.__self__, "factor", 5.0),  # type: ignore[attr-defined]
    "an attribute of the class": lambda _: setattr(Rows, "shift", 2.0),
    "an item of a list of the class": lambda _: Rows.shifts.__setitem__(0, 2.0),
    "a special method": lambda _: setattr(Times, "__call__", lambda _, value: value + 3.0),
    "an attribute in a slot": lambda rows: setattr(rows.slotted, "bias", 2.0),
    "a global variable": set_global,
    "an attribute of a global object": lambda _: setattr(SETTINGS, "bias", 2.0),
}


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    global FACTOR
    FACTOR, SETTINGS.bias, Rows.shift, Rows.shifts[0] = 1.0, 0.0, 0.0, 0.0
    Times.__call__ = CALL  # type: ignore[method-assign]


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_in_the_middle_of_a_pass_reaches_the_next_batch(what: str) -> None:
    def load(said: Said | None) -> list[Any]:
        global FACTOR
        FACTOR, SETTINGS.bias, Rows.shift, Rows.shifts[0] = 1.0, 0.0, 0.0, 0.0
        Times.__call__ = CALL  # type: ignore[method-assign]
        rows = Rows()
        with closing(make_loader(rows, said)) as loader:
            batches = take_all(loader)
            got = list(itertools.islice(batches, STARTED_AFTER + 5))
            assert is_ahead(loader) == (said is not None)
            CHANGES[what](rows)
            got += batches
            assert not is_ahead(loader)
        return got

    said = Said()
    assert load(said) == load(None)
    assert "changed the data set during a pass" in said.texts[-1]


@pytest.mark.usefixtures("restored")
def test_a_change_between_two_passes_reaches_a_new_process() -> None:
    rows, said = Rows(), Said()
    with closing(make_loader(rows, said)) as loader:
        first = list(take_all(loader))
        set_global(rows)
        assert loader.begin_pass()
        loader.follow(iter(KEYS))
        second = list(take_all(loader))
        assert is_ahead(loader)
    assert second == list(take_all(make_loader(rows))) != first


# ---------------------------------------------------------------- data sets that get no process


class Caching(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, torch.Tensor] = {}

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.cache.setdefault(number, super().__getitem__(number))


class KnowsItsProcess(Rows):
    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor(0.0 if get_worker_info() is None else 1.0)


class Connection(socket.socket):
    pass


class AsksByAnotherName(Rows):
    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor(0.0 if find_process() is None else 1.0)


find_process = get_worker_info


class Stubborn(list[Any]):
    def __reduce_ex__(self, protocol: Any) -> Any:
        return "nothing", protocol


def with_attribute(value: Callable[[Path], Any]) -> Callable[[Path], Rows]:
    def make(folder: Path) -> Rows:
        rows = Rows()
        rows.extra = value(folder)  # type: ignore[attr-defined]
        return rows

    return make


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


UNSUITABLE: dict[str, Callable[[Path], Dataset[Any]]] = {
    "keeps what it has read": lambda _: Caching(),
    "asks for its process": lambda _: KnowsItsProcess(),
    "holds an open file": with_attribute(lambda folder: (folder / "file").open("w")),
    "holds a connection": with_attribute(lambda _: Connection()),
    "holds a large tensor": with_attribute(lambda _: torch.zeros(17 << 20, dtype=torch.uint8)),
    "holds a window of an array": with_attribute(
        lambda _: np.lib.stride_tricks.sliding_window_view(np.zeros(9 << 20), 2)
    ),
    "asks for its process by another name": lambda _: AsksByAnotherName(),
    "holds a lock": with_attribute(lambda _: [threading.Lock()]),
    "holds a large array": with_attribute(lambda _: np.zeros(17 << 20, np.uint8)),
    "maps a file": with_attribute(lambda folder: np.memmap(folder / "file", np.uint8, "w+", shape=(8,))),
    "is inside of another": lambda _: Subset(Caching(), list(range(80))),
    "cannot be read": with_attribute(lambda _: Stubborn()),
}


@pytest.mark.parametrize("what", UNSUITABLE)
def test_a_data_set_that_cannot_be_compared_is_loaded_here(what: str, tmp_path: Path) -> None:
    said, dataset = Said(), UNSUITABLE[what](tmp_path)
    loader = make_loader(dataset, said)
    for _ in KEYS:
        loader.take()
        assert not is_ahead(loader)
    getattr(getattr(dataset, "extra", None), "close", int)()
    (text,) = said.texts
    assert f"Legato does not start a loader process by itself: {REASONS[what]}" in text


CHANGED = "the data set has changed while one batch was loaded and trained"
UNCLEAR = "the data set cannot be compared: "
HANDLE = f"{UNCLEAR}it holds an open file, a lock or another handle"
REASONS = {
    "keeps what it has read": CHANGED,
    "asks for its process": f"{UNCLEAR}KnowsItsProcess.__getitem__ calls get_worker_info",
    "holds an open file": f"{HANDLE} (_io.TextIOWrapper)",
    "holds a connection": HANDLE,
    "holds a large tensor": f"{UNCLEAR}it holds a tensor of 17 MiB, and only up to 16 MiB are compared",
    "holds a window of an array": f"{UNCLEAR}it holds a writable array of 144 MiB",
    "asks for its process by another name": f"{UNCLEAR}AsksByAnotherName.__getitem__ calls get_worker_info",
    "holds a lock": f"{HANDLE} (_thread.lock)",
    "holds a large array": f"{UNCLEAR}it holds a writable array of 17 MiB",
    "maps a file": f"{UNCLEAR}it maps a file",
    "is inside of another": CHANGED,
    "cannot be read": f"{UNCLEAR}comparing it raised PicklingError",
}


def test_a_data_set_that_takes_long_to_compare_is_loaded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_module, "_MAX_COMPARING", 0.9)  # comparing takes as long as loading, by the clock
    said = Said()
    loader = make_loader(Rows(), said)
    for _ in KEYS:
        loader.take()
        assert not is_ahead(loader)
    (text,) = said.texts
    assert "comparing the data set takes too long (1000.00 ms for each batch, which is loaded in 1000.00 ms;" in text


@pytest.mark.parametrize(("compare_s", "starts"), [([0.3, 0.2, 0.09], True), ([0.3, 0.2, 0.11, 0.12, 0.09], False)])
def test_the_shortest_of_a_few_comparisons_counts(
    compare_s: list[float], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap_module, "_MAX_COMPARING", 0.1)
    now, durations = 0.0, iter(compare_s)

    def compare(_: DatasetState) -> bool:
        nonlocal now
        now += next(durations)
        return False

    monkeypatch.setattr(DatasetState, "has_changed", compare)
    said = Said()
    overlap = said.overlap(Rows(), clock=lambda: now)
    for _ in range(STARTED_AFTER):
        overlap.begin_load()
        now += 1.0
        is_to_start = overlap.end_load(torch.zeros(2))
        now += 1.0
    assert is_to_start == starts
    assert ("(110.00 ms for each batch, which is loaded in 1000.00 ms; at most 10%" in said.texts[0]) != starts


@pytest.mark.parametrize(
    "value", [lambda: read_only(np.zeros(17 << 20, np.uint8)), lambda: [(Path("a"), 1)] * 200, lambda: [[1]] * 200]
)
def test_constants_of_any_size_can_be_compared(value: Callable[[], Any]) -> None:
    assert not DatasetState(value(), signer=StrictSigner).has_changed()


def test_a_read_only_view_of_an_array_is_compared() -> None:
    array = np.zeros(8)
    view = read_only(array[:])
    state = DatasetState(view, signer=StrictSigner)
    array[3] = 1.0
    assert state.has_changed()


def test_items_of_lists_in_a_long_list_are_compared() -> None:
    things = [(1, [2]) for _ in range(200)]
    state = DatasetState(things, [things], signer=StrictSigner)
    things[7][1][0] = 3
    assert state.has_changed()


# ---------------------------------------------------------------- processes that fail


def test_a_process_that_is_killed_is_replaced_by_this_one() -> None:
    said = Said()
    with closing(make_loader(Rows(), said)) as loader:
        batches = take_all(loader)
        got = list(itertools.islice(batches, STARTED_AFTER + 2))
        assert loader._processes is not None
        (process,) = loader._processes._processes
        os.kill(process.process.pid or 0, signal.SIGKILL)
        process.process.join()
        got += batches
    assert got == list(take_all(make_loader(Rows())))
    assert "ended by SIGKILL" in said.texts[-1]


class OnlyHere(Rows):
    home = os.getpid()

    def __getitem__(self, number: int) -> torch.Tensor:
        if os.getpid() != self.home:
            raise RuntimeError("no connection")
        return super().__getitem__(number)


def test_a_machine_that_starts_no_process_loads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    want, said = list(take_all(make_loader(Rows()))), Said()
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(BlockingIOError("no more processes")))
    with closing(make_loader(Rows(), said)) as loader:
        assert list(take_all(loader)) == want
    assert "no more processes" in said.texts[-1]


def test_a_process_that_starts_at_the_end_of_a_pass_sees_what_changes_before_the_next() -> None:
    rows = Rows()
    with closing(make_loader(rows, Said())) as loader:
        loader.follow(iter(KEYS[:STARTED_AFTER]))
        list(take_all(loader))
        assert is_ahead(loader)
        rows.scale = 2.0
        assert loader.begin_pass()
        loader.follow(iter(KEYS))
        assert list(take_all(loader)) == list(take_all(make_loader(rows)))


def test_a_data_set_that_takes_too_long_to_compare_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_module, "_LONGEST_COMPARING_S", 0.0)
    assert DatasetState(Rows(), signer=StrictSigner).has_changed()


def test_a_data_set_that_works_only_here_is_loaded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnlyHere, "home", os.getpid())
    said = Said()
    with closing(make_loader(OnlyHere(), said)) as loader:
        got = list(take_all(loader))
    assert got == list(take_all(make_loader(Rows())))
    assert "no connection" in said.texts[-1]


BAD = int(ORDER.samples(KEYS[20])[1])


class Failing(Rows):
    def __getitem__(self, number: int) -> torch.Tensor:
        if number == BAD:
            raise ValueError("bad pixel")
        return super().__getitem__(number)


def test_a_sample_that_fails_everywhere_is_named_and_the_next_one_is_loaded() -> None:
    with closing(make_loader(Failing(), Said())) as loader:
        assert [loader.take()[0] for _ in KEYS[:20]] == KEYS[:20]
        assert is_ahead(loader)
        with pytest.raises(DataError, match="bad pixel"):
            loader.take()
        assert [loader.take()[0] for _ in KEYS[21:]] == KEYS[21:]


def test_a_change_of_keys_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(make_loader(Rows(), Said())) as loader:
        want = dict(take_all(make_loader(Rows())))
        for _ in range(STARTED_AFTER):
            loader.take()
        loader.follow(iter(KEYS[11::2]))
        assert [next(take_all(loader)) for _ in KEYS[11:20:2]] == [(key, want[key]) for key in KEYS[11:20:2]]
        assert loader._processes is not None
        (process,) = loader._processes._processes
        process.process.kill()
        process.process.join()
        loader.follow(iter(KEYS[30:]))
        assert list(take_all(loader)) == [(key, want[key]) for key in KEYS[30:]]


# ---------------------------------------------------------------- the decision


def clock_of(load_s: float, train_s: float) -> Callable[[], float]:
    """Return a clock for `begin_load` and `end_load` in turn."""
    now, waits = 0.0, itertools.cycle((train_s, load_s))

    def read() -> float:
        nonlocal now
        now += next(waits)
        return now

    return read


@pytest.mark.parametrize(
    ("load_s", "train_s", "starts"),
    [(2e-3, 10e-3, True), (1.0, 1e-3, True), (2e-3, 30e-3, False), (0.5e-3, 1e-3, False), (0.5, 10.0, False)],
)
def test_a_process_must_save_a_notable_part_of_the_step(load_s: float, train_s: float, starts: bool) -> None:
    said = Said()
    overlap = said.overlap(Rows(), clock=clock_of(load_s, train_s))
    watched = False
    for _ in range(3 * NUM_MEASURED):
        overlap.begin_load()
        overlap.end_load(torch.zeros(2))
        watched = watched or overlap._state is not None
        overlap._state = None
    assert watched == starts


@pytest.mark.parametrize(("factor", "ends"), [(1.1, True), (0.9, False)])
def test_a_process_that_saves_no_time_ends(factor: float, ends: bool) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    said, want = Said(), list(take_all(make_loader(Rows())))
    with closing(make_loader(Rows(), said, clock=clock)) as loader:
        got = [next(take_all(loader)) for _ in range(STARTED_AFTER)]
        before = 2.0  # one tick to load, one to train; now one tick per batch
        for _ in KEYS[STARTED_AFTER:]:
            now += before * factor - 1.0
            got.append(next(take_all(loader)))
        assert is_ahead(loader) != ends
    assert got == want
    assert ("saved no time" in said.texts[-1]) == ends


def test_a_process_ends_if_the_data_set_can_no_longer_be_compared() -> None:
    said, rows, want = Said(), Rows(), list(take_all(make_loader(Rows())))
    with closing(make_loader(rows, said)) as loader:
        got = [next(take_all(loader)) for _ in range(STARTED_AFTER)]
        rows.lock = threading.Lock()  # type: ignore[attr-defined]
        got += take_all(loader)
        assert not is_ahead(loader)
    assert got == want
    assert f"has ended: {HANDLE} (_thread.lock)" in said.texts[-1]


def test_a_process_ends_if_comparing_becomes_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    said, want = Said(), list(take_all(make_loader(Rows())))
    with closing(make_loader(Rows(), said)) as loader:
        got = [next(take_all(loader)) for _ in range(STARTED_AFTER)]
        assert is_ahead(loader)
        monkeypatch.setattr(overlap_module, "_MAX_COMPARING", 0.0)
        got += take_all(loader)
        assert not is_ahead(loader)
    assert got == want
    assert "comparing the data set takes too long" in said.texts[-1]


def test_the_time_between_two_passes_does_not_count() -> None:
    now = 0.0
    overlap = Said().overlap(Rows(), clock=lambda: now)
    for _ in range(NUM_MEASURED + 3):
        overlap.begin_pass()
        now += 1000.0
        for _ in range(2):
            overlap.begin_load()
            now += 1.0
            overlap.end_load(torch.zeros(2))
            now += 1.0
    assert overlap._share == 0.5


def test_a_machine_without_room_is_asked_again_later() -> None:
    asked: list[tuple[int, int]] = []

    def find_obstacle(num_workers: int, num_bytes: int) -> str | None:
        asked.append((num_workers, num_bytes))
        return "full" if len(asked) < 3 else None

    said = Said()
    with closing(make_loader(Rows(), said, find_obstacle=find_obstacle)) as loader:
        list(take_all(loader))
        assert is_ahead(loader)
    assert asked == [(1, 8)] * 3
    assert len(said.texts) == 1


def test_each_lack_of_the_machine_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"RssAnon": 1000, "MemAvailable": 2001}
    free = SimpleNamespace(f_bavail=100, f_frsize=80)
    monkeypatch.setattr(overlap_module, "read_kib", lambda _, name: figures[name])
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(overlap_module.sys, "platform", "linux")
    assert find_obstacle_here(2, 1000) is None
    assert find_obstacle_here(3, 1000) == "every core has a worker"
    assert find_obstacle_here(2, 1001) == "/dev/shm has no room for batches"
    figures["RssAnon"] = 1001
    assert "memory" in str(find_obstacle_here(2, 1000))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert "thread" in str(find_obstacle_here(2, 1000))
    monkeypatch.setattr(overlap_module.multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert "pool" in str(find_obstacle_here(2, 1000))
    monkeypatch.setattr(overlap_module.sys, "platform", "darwin")
    assert "Linux" in str(find_obstacle_here(2, 1000))


def test_the_bytes_of_a_batch_are_those_of_its_tensors() -> None:
    batch = {"a": torch.zeros(4), "b": [torch.zeros(2, dtype=torch.uint8), ("text", 7)]}
    assert overlap_module._num_bytes(batch) == 18


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")
def test_the_memory_of_this_process_is_read() -> None:
    resident = overlap_module.read_kib("/proc/self/status", "RssAnon")
    assert 1000 < resident < overlap_module.read_kib("/proc/meminfo", "MemTotal")
