"""Leaves loops over iterable loaders whose iterators stand in cycles: the collector ends them, on any thread."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys

import torch
from elasticai_api.common.data_shard_service import RecordIndexService
from torch.utils.data import DataLoader, IterableDataset


class Records(IterableDataset):
    def __init__(self, service):
        self.data_shard_service = service

    def __iter__(self):
        while True:
            try:
                yield torch.tensor(self.data_shard_service.fetch_record_index())
            except StopIteration:
                return


class Holder:
    pass


def main(num_loops):
    faulthandler.dump_traceback_later(60, exit=True)
    service = RecordIndexService(
        batch_size=4, dataset_size=100_000, num_epochs=1, num_minibatches_per_shard=1, dataset_name="g"
    )
    records = Records(service)
    gc.set_threshold(200, 10, 10)
    for _ in range(num_loops):
        holder = Holder()
        holder.batches = iter(DataLoader(records, batch_size=4, num_workers=1, prefetch_factor=64))
        holder.itself = holder
        for _ in range(3):
            next(holder.batches)
            service.report_batch_done()
        del holder
    print("left", num_loops, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
