# SPDX-License-Identifier: LGPL-2.1-or-later
"""As accelerate's cv_example: batches are dicts, the loader is prepared anew, and its whole batches
are dealt out to the ranks."""
import os

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, Dataset

import parts


class PetsDataset(Dataset):
    def __init__(self, file_names):
        self.file_names = file_names

    def __len__(self):
        return len(self.file_names)

    def __getitem__(self, index):
        path = self.file_names[index]
        return {"image": parts.load(path), "label": parts.label_of(path)}


class BatchSamplerShard(BatchSampler):
    """Of all batches every `num_processes`th; as many for each."""

    def __init__(self, batch_sampler, num_processes, process_index):
        self.batch_sampler = batch_sampler
        self.num_processes, self.process_index = num_processes, process_index
        self.batch_size, self.drop_last = batch_sampler.batch_size, batch_sampler.drop_last
        self.split_batches = False

    def __len__(self):
        return len(self.batch_sampler) // self.num_processes

    def __iter__(self):
        for number, batch in enumerate(self.batch_sampler):
            if number // self.num_processes < len(self) and \
                    number % self.num_processes == self.process_index:
                yield batch


class DataLoaderShard(DataLoader):
    pass


def prepare(loader, rank, world):
    batches = loader.batch_sampler
    if world > 1:
        batches = BatchSamplerShard(batches, world, rank)
    return DataLoaderShard(loader.dataset, batch_sampler=batches, num_workers=loader.num_workers)


def main():
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    loader = prepare(DataLoader(PetsDataset(parts.files()), parts.BATCH, shuffle=True,
                                num_workers=1), rank, world)
    model = parts.make_model()
    trained = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.SGD(trained.parameters(), lr=0)
    record = parts.Record()
    for _ in range(parts.EPOCHS):
        for batch in loader:
            record.training.append(parts.numbers_in(batch["image"]))
            loss = torch.nn.functional.cross_entropy(trained(batch["image"]), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    record.write(model, rank)


if __name__ == "__main__":
    main()
