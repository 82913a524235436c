"""Loading: the same batches by process or inline, nothing loaded twice, failures told, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter, OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import takewhile
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from legato.core.errors import DataError
from legato.core.span import split
from legato.train.data import loader_processes
from legato.train.data.loader import Loader
from legato.train.data.order import Key, Layout, Order

LAYOUT = Layout(8, 4)


class Augmented(Dataset[Any]):
    """Draws from every generator for each sample."""

    def __init__(self, num_samples: int = 40) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "drawn": (random.random(), np.random.rand(2), torch.randn(3))}


class Batched(Augmented):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Counting(Augmented):
    """Writes down every sample that is loaded, from any process."""

    def __init__(self, path: Path, num_samples: int = 40) -> None:
        super().__init__(num_samples)
        self.path = path

    def __getitem__(self, index: int) -> Any:
        with self.path.open("a") as file:
            file.write(f"{index}\n")
        return index

    def loads(self) -> Counter[int]:
        return Counter(map(int, self.path.read_text().split())) if self.path.exists() else Counter()


class Failing(Augmented):
    def __init__(self, failure: Callable[[], None]) -> None:
        super().__init__()
        self.failure = failure

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            self.failure()
        return index


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def keys_of(order: Order, num_epochs: int = 1) -> list[Key]:
    return [
        Key(epoch, step, index)
        for epoch in range(num_epochs)
        for step in range(order.num_steps)
        for index in range(order.num_micro_batches_of(step))
    ]


def take_all(loader: Loader) -> Iterator[tuple[Key, Any]]:
    while True:
        try:
            taken = loader.take()
        except StopIteration:
            return
        yield taken


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in (key, *flat(value[key]))]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(leaf for each in value for leaf in flat(each))]
    if isinstance(value, torch.Tensor):
        return [value.dtype, tuple(value.shape), value.stride(), value.contiguous().numpy().tobytes()]
    return [value.tobytes()] if isinstance(value, np.ndarray) else [value]


def load(dataset: Dataset[Any], num_workers: int, **options: Any) -> list[tuple[Key, list[Any]]]:
    order = Order(len(dataset), LAYOUT, seed=3)  # type: ignore[arg-type]
    with closing(Loader(dataset, order, seed=3, num_workers=num_workers, **options)) as loader:
        keys = keys_of(order, num_epochs=2)
        loader.follow(iter(keys))
        got = [(key, flat(batch)) for key, batch in take_all(loader)]
    assert [key for key, _ in got] == keys
    return got


DATASETS: dict[str, Callable[[], Dataset[Any]]] = {
    "augmented": Augmented,
    "batched": Batched,
    "subset": lambda: Subset(Augmented(), list(range(39, 2, -1))),
    "subset of batched": lambda: Subset(Batched(), list(range(39, 2, -1))),
    "joined": lambda: ConcatDataset([Augmented(), Augmented(11)]),
    "tensors": lambda: TensorDataset(torch.rand(37, 2, 3), torch.arange(37)),
    "subset of tensors": lambda: Subset(TensorDataset(torch.rand(37, 2)), list(range(20))),
}


@pytest.mark.parametrize("name", DATASETS)
def test_processes_load_what_this_process_would(name: str) -> None:
    torch.manual_seed(0)
    dataset = DATASETS[name]()
    want = load(dataset, 0)
    assert load(dataset, 1) == want
    assert load(dataset, 3, prefetch_factor=1) == want


class Video(Augmented):
    """Samples whose last axis in memory is the channel."""

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2, 4, 5, 3).permute(0, 3, 1, 2)


@pytest.mark.parametrize("collate_fn", [None, default_collate, lambda items: [default_collate(items)]])
def test_batches_of_processes_have_the_same_layout_in_memory(collate_fn: Any) -> None:
    assert load(Video(12), 1, collate_fn=collate_fn) == load(Video(12), 0, collate_fn=collate_fn)


class Slotted(Augmented):
    __slots__ = ("scale",)

    def __init__(self) -> None:
        super().__init__(8)
        self.scale = 1.0

    def __getitem__(self, index: int) -> Any:
        return self.scale * index


def test_attributes_in_slots_are_seen_when_they_change() -> None:
    dataset, order = Slotted(), Order(8, Layout(4, 2), 0, False)
    with closing(Loader(dataset, order, seed=0, num_workers=1)) as loader:
        for scale in (1.0, 3.0):
            dataset.scale = scale
            loader.begin_pass()
            loader.follow(iter(keys_of(order)))
            assert torch.cat([batch for _, batch in take_all(loader)]).tolist() == [scale * n for n in range(8)]


def test_processes_that_cannot_be_started_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(BlockingIOError("no more processes")))
    order = Order(40, LAYOUT, seed=3)
    with (
        closing(Loader(Augmented(), order, seed=3, num_workers=2)) as loader,
        pytest.raises(DataError, match="cannot be started: no more processes"),
    ):
        loader.follow(iter(keys_of(order)))


def test_processes_may_be_spawned() -> None:
    assert load(Augmented(12), 1, multiprocessing_context="spawn") == load(Augmented(12), 0)


def test_augmentation_depends_on_the_micro_batch_and_epoch_alone() -> None:
    order = Order(40, LAYOUT, seed=3)

    def drawn(keys: list[Key]) -> dict[Key, Any]:
        loader = Loader(Augmented(), order, seed=3, collate_fn=list)
        loader.follow(iter(keys))
        return {key: flat([item["drawn"] for item in batch]) for key, batch in take_all(loader)}

    keys = keys_of(order, num_epochs=2)
    want = drawn(keys)
    assert drawn(keys[::-3]) == {key: want[key] for key in keys[::-3]}
    numbers = [leaf for leaves in want.values() for leaf in leaves if isinstance(leaf, float)]
    assert len(set(numbers)) == len(numbers) == 80, "each sample of each epoch has its own"


@pytest.mark.parametrize("kind", [Augmented, Batched])
def test_the_generators_are_seeded_once_for_a_micro_batch(
    kind: type[Augmented], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded: list[int] = []
    monkeypatch.setattr("legato.train.data.seeds._set_generators", seeded.append)
    order = Order(40, LAYOUT, seed=3)
    loader = Loader(kind(), order, seed=3)
    loader.follow(iter(keys_of(order)))
    list(take_all(loader))
    assert len(set(seeded)) == len(seeded) == 10


def test_loader_processes_leave_the_random_state_of_the_trainer_alone() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    want = (random.random(), np.random.rand(), torch.rand(()).item())
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    load(Augmented(), 2)
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == want


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "images": lambda: torch.rand(20, 3, 4, 5),
    "one channel": lambda: torch.rand(20, 1, 4, 5),
    "numbers": lambda: torch.arange(20),
    "truths": lambda: torch.rand(20) > 0.5,
    "half": lambda: torch.rand(20, 3).half(),
    "complex": lambda: torch.rand(20, 3, dtype=torch.complex64),
    "conjugate": lambda: torch.rand(20, 3, dtype=torch.complex64).conj(),
    "empty rows": lambda: torch.rand(20, 0, 3),
    "channels last": lambda: torch.rand(20, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: torch.rand(4, 20).t(),
    "strided": lambda: torch.rand(40, 3)[::2],
    "expanded": lambda: torch.rand(1, 3).expand(20, 3),
    "gradient": lambda: torch.rand(20, 3, requires_grad=True),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("nesting", [0, 1, 2])
def test_tensors_as_a_whole_are_the_bytes_of_single_samples(name: str, nesting: int) -> None:
    dataset: Dataset[Any] = TensorDataset(TENSORS[name](), torch.arange(20) * 2)
    for _ in range(nesting):
        dataset = Subset(dataset, torch.randperm(len(dataset)).tolist()[1:])  # type: ignore[arg-type]
    order = Order(len(dataset), LAYOUT, seed=3)  # type: ignore[arg-type]
    loader = Loader(dataset, order, seed=3)
    loader.follow(iter(keys_of(order)))
    for key, batch in take_all(loader):
        want = default_collate([dataset[number] for number in order.samples(key).tolist()])
        assert flat(resolved(batch)) == flat(resolved(want))
        assert [each.requires_grad for each in batch] == [each.requires_grad for each in want]


def resolved(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().resolve_conj() for tensor in tensors]


@pytest.mark.parametrize("indices", [[-1, 3, 4], torch.tensor([5, 1, 2, 0]), range(4), np.array([3, 1, 2])])
def test_a_subset_may_be_given_in_many_ways(indices: Any) -> None:
    dataset = Subset(TensorDataset(torch.arange(10)), indices)
    order = Order(len(dataset), Layout(2, 1), seed=0, shuffle=False)
    loader = Loader(dataset, order, seed=0)
    loader.follow(iter(keys_of(order)))
    assert [batch[0].item() for _, batch in take_all(loader)] == [dataset[at][0].item() for at in range(len(dataset))]


@pytest.mark.parametrize("nesting", [0, 1])
@pytest.mark.parametrize("give", [list, np.array, torch.tensor])
def test_a_change_of_a_subset_within_a_pass_reaches_the_next_batch(
    give: Callable[[list[int]], Any], nesting: int
) -> None:
    indices = give([0, 1, 2, 3])
    dataset = Subset(TensorDataset(torch.arange(10)), indices)
    for _ in range(nesting):
        dataset = Subset(dataset, range(4))
    order = Order(4, Layout(1, 1), seed=0, shuffle=False)
    loader = Loader(dataset, order, seed=0)
    loader.follow(iter(keys_of(order)))
    first = [loader.take()[1][0].item() for _ in range(2)]
    for place in range(4):
        indices[place] += 5
    assert first + [batch[0].item() for _, batch in take_all(loader)] == [0, 1, 7, 8]


def test_numbers_of_a_subset_that_become_wrong_within_a_pass_are_read_one_by_one() -> None:
    indices = [0, 1, 2, 3]
    order = Order(4, Layout(1, 1), seed=0, shuffle=False)
    loader = Loader(Subset(TensorDataset(torch.arange(10)), indices), order, seed=0)
    loader.follow(iter(keys_of(order)))
    assert loader.take()[1][0].item() == 0
    indices[1] = -1
    assert loader.take()[1][0].item() == 9
    indices[2] = 10
    with pytest.raises(DataError, match="sample 2 raised IndexError"):
        loader.take()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_nothing_is_loaded_twice_or_beyond_the_window(num_workers: int, tmp_path: Path) -> None:
    dataset = Counting(tmp_path / "loads")
    order = Order(40, LAYOUT, seed=3)
    with closing(Loader(dataset, order, seed=3, num_workers=num_workers, prefetch_factor=2)) as loader:
        keys = keys_of(order)
        pulled = 0

        def counted() -> Iterator[Key]:
            nonlocal pulled
            for key in keys:
                pulled += 1
                yield key

        loader.follow(counted())
        for number, (_, _) in enumerate(take_all(loader), start=1):
            assert pulled <= number + 2 * num_workers
    assert dataset.loads() == Counter(range(40))


def test_a_change_of_keys_keeps_what_is_loaded_and_wanted(tmp_path: Path) -> None:
    dataset = Counting(tmp_path / "loads", 80)
    order = Order(80, LAYOUT, seed=3)
    keys = keys_of(order)
    with closing(Loader(dataset, order, seed=3, num_workers=2, prefetch_factor=4)) as loader:
        loader.follow(iter(keys[:8]))
        wait_until(lambda: dataset.loads().total() == 8 * 4)
        # Takes in key 1 too, from the other process; the rest is still on its way.
        assert loader.take()[0] == keys[0]
        # The next window is keys 1, 3, 5, 7 (all loaded) and then others.
        after = [*keys[1:8:2], *keys[10:14]]
        loader.follow(iter(after))
        assert [key for key, _ in take_all(loader)] == after
        loads = dataset.loads()
    assert set(loads.values()) == {1}
    assert loads.total() == (8 + 4) * 4


def test_work_that_is_not_begun_is_taken_back(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    class Gated(Counting):
        def __getitem__(self, index: int) -> Any:
            got = super().__getitem__(index)
            if index == 0:
                gate.read_text()
            return got

    dataset = Gated(tmp_path / "loads")
    order = Order(40, LAYOUT, seed=3, shuffle=False)
    keys = keys_of(order)
    with closing(Loader(dataset, order, seed=3, num_workers=1, prefetch_factor=4)) as loader:
        loader.follow(iter(keys[:4]))
        wait_until(lambda: dataset.loads()[0] == 1)
        loader.follow(iter(keys[3:6]))
        gate.write_text("go on")
        assert [key for key, _ in take_all(loader)] == keys[3:6]
        assert set(dataset.loads()) == {*range(4), *range(12, 24)}


@settings(max_examples=examples(6), deadline=None)
@given(st.data())
def test_batches_are_right_under_any_change_of_membership(data: st.DataObject) -> None:
    order = Order(40, LAYOUT, seed=3)
    want = dict(load(Augmented(), 0))
    num_workers = data.draw(st.sampled_from([0, 2]))
    with closing(Loader(Augmented(), order, seed=3, num_workers=num_workers)) as loader:
        for step in range(order.num_steps):
            for attempt in range(data.draw(st.integers(1, 3))):
                if attempt or data.draw(st.booleans()) or not step:
                    num_ranks = data.draw(st.integers(1, 3))
                    rank = data.draw(st.integers(0, num_ranks - 1))
                    loader.follow(iter(keys_of_rank(order, step, rank, num_ranks)))
                span = split(order.num_micro_batches_of(step), num_ranks)[rank]
                # A round that breaks is left in the middle.
                last = attempt and data.draw(st.booleans())
                for index in range(span.start, span.stop - bool(last)):
                    key, batch = loader.take()
                    assert key == Key(0, step, index)
                    assert flat(batch) == want[key]
            if span.num_items and last:
                loader.follow(iter(keys_of_rank(order, step + 1, rank, num_ranks)))


def keys_of_rank(order: Order, first_step: int, rank: int, num_ranks: int) -> list[Key]:
    spans = [split(order.num_micro_batches_of(step), num_ranks)[rank] for step in range(order.num_steps)]
    return [
        Key(0, step, index)
        for step in range(first_step, order.num_steps)
        for index in range(spans[step].start, spans[step].stop)
    ]


def raise_value_error() -> None:
    raise ValueError("bad pixel")


def raise_unpicklable() -> None:
    raise Unpicklable(1, 2)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("failure", "cause"), [(raise_value_error, ValueError), (raise_unpicklable, None)])
def test_a_sample_that_fails_is_named(num_workers: int, failure: Callable[[], None], cause: type | None) -> None:
    order = Order(40, LAYOUT, seed=3, shuffle=False)
    with closing(Loader(Failing(failure), order, seed=3, num_workers=num_workers)) as loader:
        loader.follow(iter(keys_of(order)))
        assert loader.take()[0] == Key(0, 0, 0)
        with pytest.raises(DataError, match=r"micro-batch 1 of step 0 in epoch 0 \(samples 4, 5, 6, 7\)") as caught:
            loader.take()
        assert "sample 5 raised" in str(caught.value)
        assert caught.value.__cause__ is not None
        if cause is not None:
            assert type(caught.value.__cause__) is cause
            assert "bad pixel" in str(caught.value)
        if num_workers:
            assert "raise_" in "".join(caught.value.__cause__.__notes__)
        assert loader.take()[0] == Key(0, 1, 0)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_collation_that_fails_is_named(num_workers: int) -> None:
    def collate(items: list[Any]) -> Any:
        raise KeyError("label")

    order = Order(40, LAYOUT, seed=3)
    with closing(Loader(Augmented(), order, seed=3, collate_fn=collate, num_workers=num_workers)) as loader:
        loader.follow(iter(keys_of(order)))
        with pytest.raises(DataError, match=r"collating them raised KeyError: 'label'") as caught:
            loader.take()
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_samples_that_torch_cannot_collate_need_a_collate_fn(num_workers: int) -> None:
    ragged: Any = [torch.zeros(1 + number % 3) for number in range(40)]
    with closing(Loader(ragged, Order(40, LAYOUT, seed=3), seed=3, num_workers=num_workers)) as loader:
        loader.follow(iter(keys_of(Order(40, LAYOUT, seed=3))))
        with pytest.raises(DataError, match=r"equal size.* Give run\.batches, and run\.evaluate, a collate_fn"):
            loader.take()


class Homeless:
    """A batch for which torch finds no room in /dev/shm."""

    def __reduce__(self) -> Any:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2>: No space left on device (28)")


def test_too_little_shared_memory_for_loader_processes_is_named_with_the_machine_and_what_to_do() -> None:
    order = Order(40, LAYOUT, seed=3)
    collate = lambda items: Homeless()  # noqa: E731
    with closing(Loader(Augmented(), order, seed=3, collate_fn=collate, num_workers=1)) as loader:
        loader.follow(iter(keys_of(order)))
        with pytest.raises(DataError, match=rf"/dev/shm of machine {socket.gethostname()}.* --shm-size") as caught:
            loader.take()
    assert "Fix the data set" not in str(caught.value)


def test_a_batch_that_cannot_be_sent_is_named() -> None:
    order = Order(40, LAYOUT, seed=3)
    collate = lambda items: lambda: items  # noqa: E731
    with closing(Loader(Augmented(), order, seed=3, collate_fn=collate, num_workers=1)) as loader:
        loader.follow(iter(keys_of(order)))
        with pytest.raises(DataError, match="cannot be sent to the trainer"):
            loader.take()


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL(?=.*killed for memory, take fewer loader)"),
        (lambda: os.kill(os.getpid(), signal.SIGBUS), "ended by SIGBUS(?=.*/dev/shm may have no room. Enlarge it)"),
        (lambda: os._exit(7), "exited with 7"),
    ],
)
def test_a_loader_process_that_dies_is_reported_with_its_machine(failure: Callable[[], None], told: str) -> None:
    order = Order(40, LAYOUT, seed=3, shuffle=False)
    with closing(Loader(Failing(failure), order, seed=3, num_workers=1, prefetch_factor=1)) as loader:
        loader.follow(iter(keys_of(order)))
        loader.take()
        who = rf"legato-loader-0 \(pid \d+ on machine {socket.gethostname()}\)"
        with pytest.raises(DataError, match=rf"{who} .*{told} with micro-batch 1 of step 0"):
            loader.take()
        with pytest.raises(DataError, match="Cannot load data"):
            loader.take()


def test_an_iterable_data_set_is_refused() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(40))

    with pytest.raises(DataError, match="map-style"):
        Loader(Stream(), Order(40, LAYOUT, seed=3), seed=3)


@pytest.mark.parametrize("options", [{"num_workers": -1}, {"num_workers": 1, "prefetch_factor": 0}])
def test_senseless_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(DataError, match="Cannot load data"):
        Loader(Augmented(), Order(40, LAYOUT, seed=3), seed=3, **options)  # type: ignore[arg-type]


def test_a_pipe_may_get_the_number_of_a_private_descriptor_that_was_closed() -> None:
    """Another thread may close one while the processes start: memory of a view that is over."""
    ours = [os.open(os.devnull, os.O_RDONLY)]

    def list_and_close() -> list[int]:
        listed = list(ours)
        for fd in listed:
            os.close(fd)
        ours.clear()
        return listed

    order = Order(40, LAYOUT, seed=3)
    with closing(Loader(Augmented(), order, seed=3, num_workers=1, private_fds=list_and_close)) as loader:
        loader.follow(iter(keys_of(order)))
        loader.take()


def test_private_descriptors_are_not_held_open() -> None:
    ours, theirs = socket.socketpair()
    kept_read, kept_write = os.pipe()
    order = Order(40, LAYOUT, seed=3)
    loader = Loader(Augmented(), order, seed=3, num_workers=2, private_fds=lambda: [ours.fileno()])
    with closing(loader), theirs:
        loader.follow(iter(keys_of(order)))
        loader.take()
        ours.close()
        theirs.settimeout(10)
        assert theirs.recv(1) == b""
        # The test would pass with any descriptor if processes inherited none.
        os.close(kept_write)
        os.set_blocking(kept_read, False)
        with pytest.raises(BlockingIOError):
            os.read(kept_read, 1)
    assert os.read(kept_read, 1) == b""
    os.close(kept_read)


def test_close_ends_the_processes_and_can_be_repeated() -> None:
    order = Order(40, LAYOUT, seed=3)
    loader = Loader(Failing(lambda: time.sleep(600)), order, seed=3, num_workers=2)
    loader.follow(iter(keys_of(order)))
    loader.take()
    before = multiprocessing.active_children()
    assert len(before) == 2
    loader.close()
    loader.close()
    assert multiprocessing.active_children() == []
    with pytest.raises(StopIteration):
        loader.take()


def test_the_elder_of_two_loaders_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[BaseProcess] = []
    kill = BaseProcess.kill
    monkeypatch.setattr(BaseProcess, "kill", lambda process: (killed.append(process), kill(process)))
    order = Order(40, LAYOUT, seed=3)
    elder, younger = (Loader(Augmented(), order, seed=3, num_workers=2) for _ in range(2))
    for loader in (elder, younger):
        loader.follow(iter(keys_of(order)))
        loader.take()
    elder.close()
    younger.take()
    younger.close()
    assert killed == [], "those that wait for work end when their pipe does"


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from torch.utils.data import Dataset
    from legato.train.data.loader import Loader
    from legato.train.data.order import Key, Layout, Order

    class Talking(Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, index):
            if index == 8:
                os.write(1, b"stuck\\n")
                signal.pause()
            print("sample", index, os.getpid())
            return index

    order = Order(12, Layout(4, 4), seed=0, shuffle=False)
    loader = Loader(Talking(), order, seed=0, num_workers=1)
    loader.follow(iter([Key(0, 0, 0), Key(0, 1, 0), Key(0, 2, 0)]))
    loader.take()
    loader.take()
    sys.stdin.read()
    """
)


def test_loader_processes_print_and_die_with_their_parent() -> None:
    # Output into a pipe is held back by default, which is what a log file meets.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as program:
        assert program.stdout is not None
        lines = [line.split() for line in takewhile(lambda line: line != "stuck\n", program.stdout)]
        assert [line[:2] for line in lines] == [["sample", str(index)] for index in range(8)]
        (pid,) = {int(line[2]) for line in lines}
        assert pid != program.pid
        assert is_running(pid)
        program.kill()
        wait_until(lambda: not is_running(pid))


def test_idle_processes_end_without_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_processes, "CLOSE_LIMIT_S", 20.0)
    monkeypatch.setattr(BaseProcess, "kill", lambda process: pytest.fail(f"{process.name} had to be killed"))
    order = Order(40, LAYOUT, seed=3)
    loader = Loader(Augmented(), order, seed=3, num_workers=2)
    loader.follow(iter(keys_of(order)))
    loader.take()
    loader.close()
    assert multiprocessing.active_children() == []


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


# ---------------------------------------------------------------- a data set that changes between two passes


class Scaled(Dataset[Any]):
    """Its samples depend on what is set on it."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.offsets = np.zeros(4)
        self.rows = [1.0] * 8
        self.tensor = torch.zeros(8)
        self.lock = threading.Lock()
        self.transform = lambda value: value

    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> torch.Tensor:
        value = self.scale * number + self.offsets[number % 4] + self.rows[number] + self.tensor[number]
        return torch.as_tensor(self.transform(float(value)))


def set_scale(dataset: Scaled) -> None:
    dataset.scale = 7.0


def set_offset(dataset: Scaled) -> None:
    dataset.offsets[2] = 3.0


def set_row(dataset: Scaled) -> None:
    dataset.rows[5] = 9.0


def set_tensor(dataset: Scaled) -> None:
    dataset.tensor[3] += 1


def set_transform(dataset: Scaled) -> None:
    dataset.transform = lambda value: -value


@pytest.mark.parametrize("change", [set_scale, set_offset, set_row, set_tensor, set_transform])
def test_loader_processes_see_what_is_changed_between_passes(change: Callable[[Scaled], None]) -> None:
    order = Order(8, Layout(4, 2), 0, True)
    found = []
    for num_workers in (0, 2):
        dataset = Scaled()
        loader = Loader(dataset, order, seed=0, num_workers=num_workers)
        passes = []
        for epoch in range(3):
            if epoch == 1:
                change(dataset)
            loader.begin_pass()
            loader.follow(iter(keys_of(order)))
            passes.append([flat(batch) for _, batch in take_all(loader)])
        loader.close()
        found.append(passes)
    alone, with_processes = found
    assert with_processes == alone
    assert alone[0] != alone[1] == alone[2]


def test_loader_processes_are_kept_while_nothing_changes() -> None:
    order = Order(8, Layout(4, 2), 0, True)
    dataset = Scaled()
    loader = Loader(dataset, order, seed=0, num_workers=2)
    pids = []
    for epoch in range(4):
        if epoch == 2:
            dataset.scale = 2.0
        assert loader.begin_pass() == (epoch in (0, 2)), "before the first pass nothing is known"
        loader.follow(iter(keys_of(order)))
        list(take_all(loader))
        assert loader._processes is not None
        pids.append({each.process.pid for each in loader._processes._processes})
    loader.close()
    assert pids[0] == pids[1] and pids[2] == pids[3] and not pids[1] & pids[2]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_tensors_that_are_replaced_between_passes_are_read(num_workers: int) -> None:
    dataset = TensorDataset(torch.arange(8.0))
    order = Order(8, Layout(4, 2), 0, False)
    loader = Loader(dataset, order, seed=0, num_workers=num_workers)
    for offset in (0.0, 10.0):
        dataset.tensors = (torch.arange(8.0) + offset,)
        loader.begin_pass()
        loader.follow(iter(keys_of(order)))
        assert torch.cat([batch[0] for _, batch in take_all(loader)]).tolist() == dataset.tensors[0].tolist()
    loader.close()


class Batch:
    """An object that moves itself, as the batch of a tokenizer does."""

    def __init__(self, words: torch.Tensor) -> None:
        self.words = words

    def to(self, device: torch.device) -> Batch:
        return Batch(self.words.to(device))


class Fixed(list[Any]):
    """A list that cannot be made of a list."""

    def __init__(self, first: Any, *rest: Any) -> None:
        if isinstance(first, list):
            raise TypeError("no list")
        super().__init__([first, *rest])


Pair = namedtuple("Pair", "inputs targets")  # noqa: PYI024 -- as programs have them
META = torch.device("meta")


def test_a_batch_moves_to_the_device_of_the_models_however_it_is_nested() -> None:
    def collate(samples: list[Any]) -> Any:
        stacked = torch.stack([sample[0] for sample in samples])
        named = OrderedDict(a=[stacked, "a text"], b=Batch(stacked), c=(np.zeros(2), None), d=Fixed(stacked))
        return Pair(stacked, named)

    dataset = TensorDataset(torch.rand(16, 2))
    order = Order(16, LAYOUT, seed=3)
    for device in (META, torch.device("cpu")):
        with closing(Loader(dataset, order, seed=3, collate_fn=collate, device=device)) as loader:
            loader.follow(iter(keys_of(order, 1)))
            _, batch = loader.take()
        kinds = [type(part) for part in (batch, batch.targets, batch.targets["b"], batch.targets["d"])]
        assert kinds == [Pair, OrderedDict, Batch, Fixed]
        moved = [batch.inputs, batch.targets["a"][0], batch.targets["b"].words]
        assert [tensor.device for tensor in moved] == [device] * 3
        assert batch.targets["a"][1] == "a text" and isinstance(batch.targets["c"][0], np.ndarray)
