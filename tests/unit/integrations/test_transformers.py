"""Hugging Face's Trainer on the elastic loop: it trains as theirs does, and refuses by name what it cannot do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.torchvision_operators import make_torchvision_importable
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset, IterableDataset

from legato.core.errors import DataError, ProgramError, UsageError
from legato.train.loop.elastic import Run

# transformers warns of its own past.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def hf() -> SimpleNamespace:
    """Hugging Face's library, and Legato's Trainer."""
    make_torchvision_importable()
    import transformers

    from legato.integrations.transformers import Trainer

    return SimpleNamespace(transformers=transformers, Trainer=Trainer)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = dict(os.environ)
    yield
    # `use_cpu=True` sets the device of the process, and Accelerate sets variables of its own.
    os.environ.clear()
    os.environ.update(before)


class Texts(Dataset[dict[str, Any]]):
    """Rows of 8 token numbers below 19; some of the first tokens are no labels, in some rows none is."""

    def __init__(self, num_samples: int = 21, start: int = 1) -> None:
        self._rows = torch.randint(19, (num_samples, 8), generator=torch.Generator().manual_seed(start))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        labels = self._rows[index].clone()
        labels[: int(labels[0]) % 9] = -100
        return {"input_ids": self._rows[index], "labels": labels}


class Points(Dataset[dict[str, Any]]):
    def __init__(self, num_samples: int = 20) -> None:
        self._x = torch.randn(num_samples, 3, generator=torch.Generator().manual_seed(5))

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self._x[index], "y": self._x[index].sum()}


class Line(torch.nn.Module):
    """A model whose loss is a mean over the samples, and which counts no labels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.linear = torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.linear(x)[:, 0]
        return {"loss": torch.nn.functional.mse_loss(found, y), "logits": found}


def language_model(hf: Any) -> Any:
    hf.transformers.set_seed(3)
    config = hf.transformers.LlamaConfig(
        vocab_size=19,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
        bos_token_id=0,
        eos_token_id=0,
    )
    return hf.transformers.LlamaForCausalLM(config)


def arguments(hf: Any, **changes: Any) -> Any:
    given = {
        "output_dir": "out",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        **changes,
    }
    return hf.transformers.TrainingArguments(**given)


def logged(trainer: Any) -> list[dict[str, float]]:
    times = ("_runtime", "_per_second", "_time")
    return [
        {name: value for name, value in line.items() if not name.endswith(times)} for line in trainer.state.log_history
    ]


def weights(model: torch.nn.Module) -> Mapping[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def test_it_trains_as_the_one_of_hugging_face(hf: Any) -> None:
    found = []
    for kind in (hf.Trainer, hf.transformers.Trainer):
        args = arguments(
            hf,
            train_sampling_strategy="sequential",
            max_grad_norm=0.7,
            weight_decay=0.1,
            warmup_steps=2,
            lr_scheduler_type="cosine",
            logging_steps=1,
            eval_strategy="epoch",
            include_num_input_tokens_seen="all",
        )
        # 21 samples: the last step of an epoch has 3 micro-batches, and the last of these one sample.
        trainer = kind(language_model(hf), args, train_dataset=Texts(), eval_dataset=Texts(9, 4))
        output = trainer.train()
        found.append((weights(trainer.model), logged(trainer), output.training_loss, trainer.state.total_flos))
    (ours, lines, loss, flos), (theirs, their_lines, their_loss, their_flos) = found
    assert flos == their_flos and loss == pytest.approx(their_loss, rel=1e-5)
    assert len(lines) == len(their_lines) == 6 + 2 + 1
    for mine, want in zip(lines, their_lines, strict=True):
        assert mine == pytest.approx(want, rel=1e-4), (mine, want)
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_a_model_that_counts_no_labels(hf: Any) -> None:
    found = []
    for kind in (hf.Trainer, hf.transformers.Trainer):
        args = arguments(hf, train_sampling_strategy="sequential", label_names=["y"], max_steps=4, logging_steps=1)
        # Full micro-batches: Hugging Face weights a smaller one as a full one, and Legato by its samples.
        trainer = kind(Line(), args, train_dataset=Points(20), eval_dataset=Points(6))
        trainer.train()
        assert trainer.state.global_step == 4 and trainer.state.epoch == pytest.approx(1.4)
        found.append((weights(trainer.model), trainer.evaluate()["eval_loss"], logged(trainer)))
    for name, value in found[1][0].items():
        assert found[0][0][name] == pytest.approx(value, rel=1e-5), name
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)
    norms = [[line["grad_norm"] for line in lines if "grad_norm" in line] for _, _, lines in found]
    assert len(norms[0]) == 4 and norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_callback_may_freeze_parameters_when_a_step_begins(hf: Any) -> None:
    class Alternate(hf.transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            model.linear.bias.requires_grad_(state.global_step % 2 == 0)

    found = []
    for kind in (hf.Trainer, hf.transformers.Trainer):
        args = arguments(hf, train_sampling_strategy="sequential", label_names=["y"], max_steps=4)
        trainer = kind(Line(), args, train_dataset=Points(16), callbacks=[Alternate()])
        trainer.train()
        found.append(weights(trainer.model))
    for name, value in found[1].items():
        assert found[0][name] == pytest.approx(value, rel=1e-5), name


def test_what_a_callback_draws_when_a_step_begins_leaves_the_numbers_of_the_micro_batches(hf: Any) -> None:
    class Noisy(Line):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            return super().forward(x + torch.randn_like(x), y)

    class Draw(hf.transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            torch.rand(3)

    found = []
    for callbacks in ([], [Draw()]):
        trainer = hf.Trainer(Noisy(), arguments(hf, label_names=["y"]), train_dataset=Points(), callbacks=callbacks)
        trainer.train()
        found.append(weights(trainer.model))
    assert all((found[0][name] == found[1][name]).all() for name in found[0])


def test_what_a_callback_and_a_trainer_keep_in_attributes_reaches_workers_that_join(hf: Any) -> None:
    from legato.integrations.transformers import _Attributes

    class Patience(hf.transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def __init__(self, trainer: Any) -> None:
            self.trainer, self.best, self.average = trainer, 9.0, AveragedModel(trainer.model)

    class Own(hf.Trainer):  # type: ignore[misc,name-defined]
        def __init__(self, *given: Any, **named: Any) -> None:
            self.first = 1.0
            super().__init__(*given, **named)
            self.second = {"best": 1.0}

    def make() -> tuple[Any, Any]:
        trainer = Own(Line(), arguments(hf, label_names=["y"], max_steps=1), train_dataset=Points())
        trainer.add_callback(Patience(trainer))
        trainer.train()
        return trainer, trainer._attributes

    (trainer, ours), (other, theirs) = make(), make()
    assert not ours.state_dict()["values"]
    callback, copied = (each.callback_handler.callbacks[-1] for each in (trainer, other))
    trainer.first, trainer.second["best"], trainer.is_in_train = 2.0, 3.0, True
    callback.best = 4.0
    callback.average.module.linear.weight.data.fill_(5.0)
    theirs.load_state_dict(ours.state_dict())
    assert (other.first, other.second, other.is_in_train, copied.best) == (2.0, {"best": 3.0}, False, 4.0)
    assert copied.average.module.linear.weight.tolist() == [[5.0] * 3] != other.model.linear.weight.tolist()
    assert isinstance(ours, _Attributes) and not {"model", "args"} & trainer._own_names


@pytest.mark.parametrize("place", ["compute_loss", "log", "none"])
@pytest.mark.parametrize("begins", ["__init__", "class", "later"])
def test_a_trainer_that_counts_micro_batches_gets_a_warning(
    hf: Any, monkeypatch: pytest.MonkeyPatch, begins: str, place: str
) -> None:
    class Counting(hf.Trainer):  # type: ignore[misc,name-defined]
        if begins == "class":
            num = 0

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            if begins == "__init__":
                self.num = 0

        def count(self, now: str) -> None:
            if now == place:
                self.num = getattr(self, "num", 0) + 1

        def compute_loss(self, *given: Any, **named: Any) -> Any:
            self.count("compute_loss")
            return super().compute_loss(*given, **named)

        def log(self, *given: Any, **named: Any) -> Any:
            self.count("log")
            return super().log(*given, **named)

    told: list[str] = []
    monkeypatch.setattr(Run, "warn", lambda _, text: told.append(text))
    trainer = Counting(Line(), arguments(hf, label_names=["y"], logging_steps=1), train_dataset=Points())
    trainer.train()
    assert [text.startswith("The Trainer changes self.num while") for text in told] == [True] * (
        place == "compute_loss"
    )
    assert ("self|num" in trainer._attributes.state_dict()["values"]) is (place == "log" and begins != "later")


def test_an_early_stop_loads_the_best_model_and_keeps_its_files(hf: Any) -> None:
    args = arguments(
        hf,
        num_train_epochs=30,
        learning_rate=0.3,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
    )
    stopping = hf.transformers.EarlyStoppingCallback(early_stopping_patience=2)
    trainer = hf.Trainer(
        language_model(hf), args, train_dataset=Texts(), eval_dataset=Texts(9, 4), callbacks=[stopping]
    )
    trainer.train()
    state = trainer.state
    assert state.epoch < 30 and state.best_global_step < state.global_step
    assert trainer.evaluate()["eval_loss"] == state.best_metric
    assert [path.name for path in Path("out").iterdir()] == [f"checkpoint-{state.best_global_step}"]
    kept = hf.transformers.LlamaForCausalLM.from_pretrained(state.best_model_checkpoint)
    assert all((kept.state_dict()[name].numpy() == value).all() for name, value in weights(trainer.model).items())


def test_a_best_checkpoint_that_left_with_its_machine_is_not_needed(hf: Any) -> None:
    class Leave(hf.transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            shutil.rmtree(Path("out"), ignore_errors=True)

    saving = {"eval_strategy": "epoch", "save_strategy": "epoch", "save_total_limit": 1, "load_best_model_at_end": True}
    trainer = hf.Trainer(
        language_model(hf),
        arguments(hf, **saving),
        train_dataset=Texts(),
        eval_dataset=Texts(9, 4),
        callbacks=[Leave()],
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint is None
    assert trainer.evaluate()["eval_loss"] == trainer.state.best_metric


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_becomes_rank_0_at_the_end_of_an_epoch_saves(
    hf: Any, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    trainer = hf.Trainer(
        language_model(hf), arguments(hf, num_train_epochs=2, save_strategy="epoch"), train_dataset=Texts()
    )
    batches, present = trainer.run.batches, 1 - rank

    def change_at_the_end(*given: Any, **named: Any) -> Iterator[Any]:
        nonlocal present
        yield from batches(*given, **named)
        present = rank

    monkeypatch.setattr(type(trainer.run), "rank", property(lambda _: present))
    monkeypatch.setattr(trainer.run, "batches", change_at_the_end)
    trainer.train()
    assert len(list(Path("out").glob("checkpoint-3/model.safetensors"))) == 1 - rank


def test_a_best_model_with_parameters_that_were_frozen_is_refused(hf: Any) -> None:
    class Thaw(hf.transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            if state.global_step == 6:
                model.lm_head.requires_grad_(True)

    model = language_model(hf)
    model.lm_head.requires_grad_(False)
    args = arguments(hf, num_train_epochs=3, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True)
    trainer = hf.Trainer(model, args, train_dataset=Texts(), eval_dataset=Texts(9, 4), callbacks=[Thaw()])
    trainer._determine_best_metric = lambda metrics, trial: first_only(trainer)
    with pytest.raises(ProgramError, match=r"were unfrozen after it was saved, such as lm_head\.weight"):
        trainer.train()


def first_only(trainer: Any) -> bool:
    if trainer.state.best_global_step is None:
        trainer.state.best_global_step, trainer.state.best_metric = trainer.state.global_step, 1.0
    return True


def test_the_seed_of_the_job_replaces_that_of_the_arguments(hf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_SEED", "77")
    made = []
    trainer = hf.Trainer(
        args=arguments(hf, max_steps=1),
        train_dataset=Points(),
        model_init=lambda: made.append(torch.initial_seed()) or Line(),
    )
    trainer.train()
    assert trainer.args.seed == 77 and set(made) == {77}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True. .* Set per_device_train_batch_size"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy='group_by_length'. .* 'sequential'"),
        ({"data_seed": 0}, "data_seed=0. .* seed sets the order"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last=True. .* a smaller step"),
        ({"torch_compile": True}, "torch_compile=True. .* Leave it out"),
        ({"eval_on_start": True}, r"eval_on_start=True. Call trainer\.evaluate\(\)"),
        ({"push_to_hub": True}, r"push_to_hub=True. Call trainer\.push_to_hub\(\)"),
        ({"enable_jit_checkpoint": True}, "enable_jit_checkpoint=True. Legato writes a checkpoint"),
        ({"optim": "adalomo"}, "optim='adalomo'. .* such as adamw_torch"),
        ({"optim": "galore_adamw_layerwise"}, "optim='galore_adamw_layerwise'"),
    ],
)
def test_arguments_that_are_refused(hf: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=f"Cannot train elastically with {text}"):
        hf.Trainer(Line(), arguments(hf, **changes), train_dataset=Points())


@pytest.mark.parametrize("name", ["fp16", "deepspeed", "fsdp", "parallelism_config"])
def test_arguments_of_other_machines_that_are_refused(hf: Any, name: str) -> None:
    # Hugging Face makes such arguments only where their hardware or library is.
    args = arguments(hf)
    setattr(args, name, True)
    with pytest.raises(UsageError, match=f"Cannot train elastically with {name}=True. "):
        hf.Trainer(Line(), args, train_dataset=Points())


def test_a_process_of_torchrun_is_refused(hf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(hf)
    monkeypatch.setitem(args.distributed_state.__dict__, "num_processes", 2)
    with pytest.raises(UsageError, match=r"one of 2 of torch\.distributed\. Start the program with `legato run`"):
        hf.Trainer(Line(), args, train_dataset=Points())


def test_a_process_of_torchrun_without_gpus_is_refused(hf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(hf)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"one of 2 of torch\.distributed"):
        hf.Trainer(Line(), args, train_dataset=Points())


def test_a_collator_with_a_generator_of_its_own_is_refused(hf: Any) -> None:
    def collate(samples: list[Any]) -> Any:
        return samples

    collate.seed = 3  # type: ignore[attr-defined]
    trainer = hf.Trainer(Line(), arguments(hf), train_dataset=Points(), data_collator=collate)
    with pytest.raises(DataError, match="Leave its seed out"):
        trainer.train()


def test_a_divided_model_is_refused(hf: Any) -> None:
    model: Any = Line()
    model.hf_device_map = {"a": 0, "b": 1}
    with pytest.raises(UsageError, match="each worker needs the whole model"):
        hf.Trainer(model, arguments(hf), train_dataset=Points())


def test_an_own_loader_is_refused(hf: Any) -> None:
    class Own(hf.Trainer):  # type: ignore[misc,name-defined]
        def get_train_dataloader(self) -> Any:
            return []

    with pytest.raises(UsageError, match=r"Own\.get_train_dataloader cannot be overridden: .* data_collator"):
        Own(Line(), arguments(hf), train_dataset=Points())


def test_what_train_refuses(hf: Any) -> None:
    class Stream(IterableDataset[dict[str, Any]]):
        def __iter__(self) -> Any:
            return iter(())

    trainer = hf.Trainer(Line(), arguments(hf, max_steps=1), train_dataset=Stream())
    with pytest.raises(DataError, match=r"train_dataset of type Stream: .* streaming=False"):
        trainer.train()
    with pytest.raises(UsageError, match=r"resume_from_checkpoint=True: .* legato run --resume"):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(UsageError, match="`legato sweep`"):
        trainer.train(trial=object())
    with pytest.raises(UsageError, match="`legato sweep`"):
        trainer.hyperparameter_search()
