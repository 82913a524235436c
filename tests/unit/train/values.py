"""Values of all kinds that a program may keep as state, and whether two of them are the same to the bit.

They stand in a module of their own, as classes of a program do: that is how they are found again.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import numpy as np
import torch


class Phase(enum.Enum):
    WARM = 1
    COLD = ("a", 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Ways(enum.Flag):
    UP = 1
    DOWN = 2


@dataclasses.dataclass
class Window:
    size: int
    values: deque[float] = dataclasses.field(default_factory=deque)
    phase: Phase = Phase.COLD

    def __post_init__(self) -> None:
        raise AssertionError("a constructor was called")


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    scale: np.float64
    mean: torch.Tensor


class Pair(NamedTuple):
    left: Any
    right: Any


def window() -> Window:
    made = object.__new__(Window)
    made.size, made.values, made.phase = 3, deque([0.1, float("inf")], maxlen=3), Phase.WARM
    made.extra = "set later"  # type: ignore[attr-defined]
    return made


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) / 3


ONE = numbered(2)
VALUES: dict[str, Any] = {
    "plain": [True, 7, 2**200, -0.1, 1 + 2j, "mülti", b"\x00\xff", bytearray(b"ab"), None, torch.float16],
    "more plain": (torch.device("cpu"), torch.Size([1, 2]), {1, "a"}, (), [], {}),
    "tensor": numbered(2, 3),
    "parameter": torch.nn.Parameter(numbered(3)),
    "channels last": numbered(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "channels last of one channel": numbered(2, 1, 4, 5).to(memory_format=torch.channels_last),
    "transposed": numbered(3, 4).t(),
    "permuted": numbered(2, 3, 4).permute(2, 0, 1),
    "expanded": torch.ones(3, 1).expand(3, 4),
    "with gaps": numbered(4, 6)[:, ::2],
    "empty": torch.zeros(0, 3, dtype=torch.int64),
    "scalar tensor": torch.tensor(3),
    "half": numbered(5).bfloat16(),
    "complex": torch.view_as_complex(numbered(3, 2)),
    "conjugated": torch.view_as_complex(numbered(3, 2)).conj(),
    "one tensor twice": {"a": ONE, "b": [ONE, numbered(2)], "c": ONE},
    "ordered": OrderedDict(b=1, a=numbered(2)),
    "counter": Counter("hello"),
    "defaultdict": defaultdict(list, {"a": [1], 2: [numbered(2)]}),
    "defaultdict of deque": defaultdict(deque, {"a": deque([1.5])}),
    "defaultdict without": defaultdict(None, {"a": 1}),
    "defaultdict with a function": defaultdict(window, {"a": 1}),
    "deque": deque([1, numbered(2)]),
    "deque with an end": deque([1.0, 2.0, 3.0], maxlen=3),
    "frozenset": frozenset({1, 2}),
    "set of members": {Phase.WARM},
    "numpy scalar": np.float64(0.1),
    "numpy half": np.float16(0.1),
    "numpy whole": np.int32(-5),
    "numpy true": np.bool_(True),
    "numpy text": np.str_("abc"),
    "numpy time": np.datetime64("2026-01-02"),
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "array of Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "array backwards": np.arange(6.0)[::-2],
    "array of other bytes": np.arange(3, dtype=">i4"),
    "array of records": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8", (1,))]),
    "array of texts": np.array(["a", "bcd"]),
    "array of nothing": np.zeros((0, 2)),
    "array of one": np.array(3.5),
    "state of a generator": np.random.default_rng(3).bit_generator.state,
    "state of another": np.random.MT19937(3).state,
    "members": [Phase.COLD, Level.HIGH, Ways.UP | Ways.DOWN, Ways(0)],
    "dataclass": window(),
    "frozen dataclass": Frozen(np.float64(0.5), numbered(2)),
    "named tuple": Pair(1, numbered(2)),
    "keys": {Phase.WARM: 1, Level.LOW: 2, (1, "a"): 3, np.int64(4): numbered(2), 5: 6, None: 7, Pair(1, 2): 8},
    "key of ours": {"__legato__": "deque", "items": [1]},
    "other key of ours": OrderedDict({"__legato_tensor__": 0, "a": {"__legato__": 3}}),
    "function": window,
    "deep": {"a": [({"b": deque([{"c": Pair(Phase.WARM, [np.float32(1)])}])},)]},
}


def same(one: Any, other: Any) -> bool:
    """Whether two values are of the same kinds and the same to the bit; parameters may have become tensors."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and _same_tensors(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        lies = one.flags.f_contiguous == other.flags.f_contiguous or not one.flags.forc
        return one.dtype == other.dtype and one.shape == other.shape and lies and one.tobytes() == other.tobytes()
    if isinstance(one, np.generic):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        factories = [getattr(value, "default_factory", None) for value in (one, other)]
        pairs = zip(one.items(), other.items(), strict=True)
        return factories[0] is factories[1] and len(one) == len(other) and all(same(mine, its) for mine, its in pairs)
    if isinstance(one, list | tuple | deque):
        ends = [getattr(value, "maxlen", None) for value in (one, other)]
        return ends[0] == ends[1] and len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        parts = [(getattr(one, name), getattr(other, name)) for name in names]
        return all(same(*pair) for pair in parts) and getattr(one, "__dict__", 0) == getattr(other, "__dict__", 0)
    return repr(one) == repr(other)


def _same_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    lies = torch.empty_like(one, device="meta").stride() == other.stride()
    return one.dtype == other.dtype and one.shape == other.shape and lies and torch.equal(one, other)
