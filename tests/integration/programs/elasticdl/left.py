"""Leaves a loop over a loader while the last records are another worker's, who waits for this one.

Arguments: a folder, the number of records. Worker 0 holds a batch until all workers have come to a named point; worker
1 works all others off.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.common.synchronization import worker_sync
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, service, num_others, reported):
        self.data_shard_service = service
        self.num_others = num_others
        self.reported = reported

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        if index == self.num_others:
            # The driver lets a worker wait for the tasks of others only when it holds none itself.
            wait_until(self.reported.exists)
        return self.data_shard_service.fetch_record_index()


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


def main(here, num_records):
    worker = int(os.environ["WORKER_ID"])
    written = Path(here, "written")

    def write(what, records):
        with written.open("a") as file:
            file.writelines(f"{what} {worker} {os.getpid()} 0 {record}\n" for record in records)

    service = RecordIndexService(batch_size=4, num_epochs=1, dataset_size=int(num_records), num_minibatches_per_shard=1)
    if worker:
        wait_until(lambda: written.exists() and "read 0" in written.read_text())
    reported = Path(here, "reported")
    records = Records(service, int(num_records) - 4, reported)
    loader = DataLoader(records, batch_size=4, num_workers=worker, prefetch_factor=1 if worker else None)
    num_done = 0
    for batch in loader:
        records = batch.tolist()
        if not worker and not num_done:
            write("read", records)
            assert worker_sync("all", timeout=60)
        service.report_batch_done()
        num_done += len(records)
        write("done", records)
        if worker and num_done == int(num_records) - 4:
            # The loader's process asks for more now, which only the other worker has.
            reported.touch()
            wait_until(lambda: any(thread.name == "legato-tasks" for thread in threading.enumerate()))
            break
    if worker:
        assert worker_sync("all", timeout=60)


if __name__ == "__main__":
    main(*sys.argv[1:])
