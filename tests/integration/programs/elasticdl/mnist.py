"""As the program of ElasticDL's tutorial: digits as PNG files, a fixed global batch, a test after each epoch."""

# ruff: noqa: I001, N812, PLW2901, RET505 - as programs of users are written

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parent))

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from reins import paced, tell_end
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.pytorch.controller import PyTorchAllReduceController
from elasticai_api.pytorch.optimizer import DistributedOptimizer


class ImageFolder:
    """As torchvision's, of which the tutorial takes no more than this list; its import takes seconds."""

    def __init__(self, root):
        classes = sorted(Path(root).iterdir())
        self.imgs = [(str(path), label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]


class ElasticDataset(Dataset):
    def __init__(self, images, data_shard_service=None):
        self.data_shard_service = data_shard_service
        self._images = images

    def __len__(self):
        if self.data_shard_service:
            return sys.maxsize
        else:
            return len(self._images)

    def __getitem__(self, index):
        if self.data_shard_service:
            index = self.data_shard_service.fetch_record_index()
            return self.read_image(index)
        else:
            return self.read_image(index)

    def read_image(self, index):
        image_path, label = self._images[index]
        image = np.array(Image.open(image_path).convert("RGB"))
        image = np.array(image / 255.0, np.float32)
        if self.data_shard_service:
            image += np.random.normal(0, 0.01, image.shape).astype(np.float32)
        return image.reshape(3, 28, 28), label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 5, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(256, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv1(x)))
        x = self.dropout(torch.flatten(x, 1))
        return F.log_softmax(self.fc(x), dim=1)


nll_loss = paced(F.nll_loss)


def train_one_batch(model, optimizer, data, target):
    optimizer.zero_grad()
    output = model(data)
    loss = nll_loss(output, target)
    loss.backward()
    optimizer.step()
    return loss


def test(model, device, test_loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            pred = model(data.to(device)).argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    print(f"Test set: Accuracy: {correct}/{len(test_loader.dataset)}")


def train(args):
    device = torch.device("cpu")
    train_data = ImageFolder(args.training_data)
    test_data = ImageFolder(args.validation_data)
    data_shard_service = RecordIndexService(
        batch_size=args.batch_size,
        dataset_size=len(train_data.imgs),
        num_epochs=args.num_epochs,
        shuffle=True,
        dataset_name="mnist_training_data",
    )
    train_dataset = ElasticDataset(train_data.imgs, data_shard_service)
    train_loader = DataLoader(
        dataset=train_dataset,
        batch_size=args.batch_size,
        num_workers=args.loaders,
        multiprocessing_context=args.start_method or None,
    )
    test_loader = DataLoader(dataset=ElasticDataset(test_data.imgs), batch_size=args.batch_size, num_workers=0)

    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.5)
    optimizer = DistributedOptimizer(optimizer, fixed_global_batch_size=args.fixed)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)

    allreduce_controller = PyTorchAllReduceController(data_shard_service)
    allreduce_controller.set_broadcast_model(model)
    allreduce_controller.set_broadcast_optimizer(optimizer)
    epoch = 0
    elastic_train_one_batch = allreduce_controller.elastic_run(train_one_batch)
    with allreduce_controller.scope():
        for batch_idx, (data, target) in enumerate(train_loader):
            model.train()
            target = target.type(torch.LongTensor)
            data, target = data.to(device), target.to(device)
            loss = elastic_train_one_batch(model, optimizer, data, target)
            print(f"loss = {loss}, step = {batch_idx}")
            new_epoch = allreduce_controller.get_current_epoch()
            if new_epoch > epoch:
                epoch = new_epoch
                scheduler.last_epoch = epoch - 1
                scheduler.step()
                test(model, device, test_loader)
    print(f"rates {scheduler.get_last_lr()} epochs {scheduler.last_epoch}")
    tell_end(allreduce_controller, model, optimizer)


def arg_parser():
    parser = argparse.ArgumentParser(description="Process training parameters")
    parser.add_argument("--batch_size", type=int, default=64, required=False)
    parser.add_argument("--num_epochs", type=int, default=1, required=False)
    parser.add_argument("--learning_rate", type=float, default=0.1, required=False)
    parser.add_argument("--loaders", type=int, default=2)
    parser.add_argument("--start_method", default="")
    parser.add_argument("--fixed", type=int, default=1)
    parser.add_argument("--training_data", type=str, required=True)
    parser.add_argument("--validation_data", type=str, default="", required=False)
    return parser


if __name__ == "__main__":
    train(arg_parser().parse_args())
