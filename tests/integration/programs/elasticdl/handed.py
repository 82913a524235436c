"""Works records off that no controller trains, from a loader, and writes each of them down when it is reported.

Behind its first batch it waits at a gate: a file. Arguments: a folder, the number of records, how loaders are started.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from elasticai_api.common.data_shard_service import RecordIndexService
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, service):
        self.data_shard_service = service

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        return self.data_shard_service.fetch_record_index()


def main(here, num_records, start_method):
    def write(what, records):
        with Path(here, "written").open("a") as file:
            file.writelines(f"{what} {os.environ['WORKER_ID']} {os.getpid()} 0 {record}\n" for record in records)

    service = RecordIndexService(
        batch_size=4, num_epochs=1, dataset_size=int(num_records), shuffle=True, num_minibatches_per_shard=1
    )
    loader = DataLoader(Records(service), batch_size=4, num_workers=2, multiprocessing_context=start_method)
    for number, batch in enumerate(loader):
        records = batch.tolist()
        if number == 0:
            write("read", records[:1])
            while not Path(here, "gate").exists():
                time.sleep(0.01)
        write("done", records)
        service.report_batch_done(len(records))


if __name__ == "__main__":
    main(*sys.argv[1:])
