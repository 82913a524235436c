"""The historic ways in which programs for ElasticDL call it: one training, written again from release to release.

Each record has a weight of its own whose gradient is its share of a step, so that the weights at the end are a ledger:
how often each record was trained. Arguments: the form, the number of loader processes, how they are started.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parent))

import elasticai_api
import torch
from reins import paced, tell_end
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

BATCH, SIZE, EPOCHS = 4, 48, 16
IMAGES = torch.rand(SIZE, 6, generator=torch.Generator().manual_seed(5))
LABELS = (IMAGES.sum(1) * 2).long() % 3


class Records(Dataset):
    def __init__(self, service):
        self._service = service

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        index = self._service.fetch_record_index()
        return IMAGES[index] + 0.01 * torch.randn(6), LABELS[index], index


class Shards(IterableDataset):
    def __init__(self, service):
        self.data_shard_service = service

    def __iter__(self):
        while True:
            shard = self.data_shard_service.fetch_shard()
            if not shard:
                break
            for index in shard.indices or range(shard.start, shard.end):
                yield IMAGES[index], LABELS[index], index


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
        self.ledger = nn.Parameter(torch.zeros(SIZE))


def release_1_0(fixed):
    from elasticai_api.common.data_shard_service import RecordIndexService
    from elasticai_api.pytorch.controller import PyTorchAllReduceController
    from elasticai_api.pytorch.optimizer import DistributedOptimizer

    service = RecordIndexService(
        batch_size=BATCH, dataset_size=SIZE, num_epochs=EPOCHS, shuffle=True, dataset_name="digits"
    )
    controller = PyTorchAllReduceController(service)
    return controller, Records(service), lambda found: DistributedOptimizer(found, fixed_global_batch_size=fixed)


def head(fixed):
    from elasticai_api.pytorch.controller import create_elastic_controller
    from elasticai_api.pytorch.optimizer import DistributedOptimizer

    controller = create_elastic_controller(batch_size=BATCH, num_epochs=EPOCHS, dataset_size=SIZE, shuffle=True)
    dataset = Records(controller.data_shard_service)
    return controller, dataset, lambda found: DistributedOptimizer(found, fixed_global_batch_size=fixed)


def by_hand(fixed):
    from elasticai_api.common.constants import WorkerEnv
    from elasticai_api.common.data_shard_service import RecordIndexService
    from elasticai_api.common.master_client import MasterClient
    from elasticai_api.pytorch.controller import PyTorchAllReduceController
    from elasticai_api.pytorch.optimizer import DistributedOptimizer
    from elasticai_api.util.grpc_utils import build_channel
    from elasticai_api.util.log_utils import default_logger as logger

    client = MasterClient(build_channel(os.getenv(WorkerEnv.MASTER_ADDR, "localhost:12345")), 0)
    service = RecordIndexService(client, BATCH, EPOCHS, SIZE, 1, True)
    controller = PyTorchAllReduceController(client, service)
    controller.init_horovod_locally()
    logger.info("ready")
    return controller, Records(service), lambda found: DistributedOptimizer(found, fixed_global_batch_size=fixed)


def december_2020(fixed):
    from elasticdl.python.allreduce.pytorch_controller import create_elastic_controller
    from elasticdl.python.allreduce.torch_optimizer import DistributedOptimizer

    controller = create_elastic_controller(BATCH, EPOCHS, SIZE)
    dataset = Shards(controller.data_shard_service)
    return controller, dataset, lambda found: DistributedOptimizer(found, fixed_batch_size=fixed)


def november_2020(fixed):
    import horovod.torch as hvd
    from elasticdl.python.common.log_utils import default_logger as logger
    from elasticdl.python.worker.allreduce_controller import PyTorchAllReduceController
    from elasticdl.python.worker.data_shard_service import DataShardService
    from elasticdl.python.worker.master_client import MasterClient

    assert not fixed
    client = MasterClient("localhost:12345", 0)
    service = DataShardService(client, BATCH, EPOCHS, SIZE)
    controller = PyTorchAllReduceController(client, "localhost", service)
    controller.init_horvod_locally()
    logger.info("size %d, rank %d", hvd.size(), hvd.rank())
    return controller, Shards(service), hvd.DistributedOptimizer


FORMS = {form.__name__: form for form in (release_1_0, head, by_hand, december_2020, november_2020)}
cross_entropy = paced(nn.functional.cross_entropy)


def train_one_batch(model, optimizer, data, target, index):
    optimizer.zero_grad()
    loss = cross_entropy(model.layers(data), target) + model.ledger[index].mean()
    loss.backward()
    optimizer.step()
    return loss


def main(form, loaders="0", start_method="", fixed="1"):
    is_old = form in ("december_2020", "november_2020")
    controller, dataset, distribute = FORMS[form](fixed == "1")
    loader = DataLoader(
        dataset, batch_size=BATCH, num_workers=int(loaders), multiprocessing_context=start_method or None
    )
    model = Net()
    groups = [{"params": model.layers.parameters(), "lr": 0.1}, {"params": [model.ledger]}]
    optimizer = distribute(torch.optim.SGD(groups, lr=1.0))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 1.0], 400, cycle_momentum=False)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    model.train()
    if is_old:
        for data, target, index in loader:
            optimizer.param_groups[1]["lr"] = 1.0
            controller.elastic_run(train_one_batch)(model, optimizer, data, target, index)
            scheduler.step()
        controller.notify_train_loop_end()
    else:
        train_one = controller.elastic_run(train_one_batch)
        with controller.scope():
            for data, target, index in loader:
                optimizer.param_groups[1]["lr"] = 1.0
                train_one(model, optimizer, data, target, index)
                scheduler.step()
    counts = -model.ledger.detach() * BATCH
    print(f"ledger {counts.min().item():.5f} to {counts.max().item():.5f}")
    print(f"rates {scheduler.last_epoch}")
    tell_end(controller, model, optimizer, scheduler)


if __name__ == "__main__":
    assert elasticai_api.worker_sync("begin")
    main(*sys.argv[1:])
