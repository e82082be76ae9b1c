"""A loop of one's own with accelerate, as a function and as one of several processes."""

import sys
import warnings

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from two_processes import write_and_leave

from negwise.integrations import KInfoNCE
from negwise.integrations.accelerate import attach

DIM, ROWS = 12, 640


def pairs(rows=ROWS, seed=0):
    x = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.roll(1, 1))


def train(
    rule,
    *,
    batch=32,
    accumulation=1,
    workers=0,
    epochs=1,
    folder=None,
    resume=None,
    save_at=None,
    data=None,
    run=None,
    call=None,
    **options,
):
    """What was logged of each step, and the scores before and after; ``call(loss, query, positive)`` is the loss."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation, **options)
    model = torch.nn.Linear(DIM, DIM, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = DataLoader(pairs() if data is None else data, batch, num_workers=workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = epochs * len(loader) // accumulation
    loss = attach(accelerator, KInfoNCE(rule, steps, temperature=0.25, gather=True, run=run), optimizer)
    if accelerator.log_with:
        accelerator.init_trackers("run")
    if resume is not None:
        accelerator.load_state(resume)
    held_out = pairs(96, 1).tensors
    part = slice(accelerator.process_index * 96 // accelerator.num_processes, None)
    part = slice(part.start, part.start + 96 // accelerator.num_processes)

    def evaluate():
        loss.eval()
        with torch.no_grad():
            loss(model(held_out[0][part]), held_out[1][part])
        loss.train()
        return loss.scores()

    logs, first = [], evaluate() if resume is None else None
    for _ in range(epochs):
        data = loader if resume is None else accelerator.skip_first_batches(loader, (loss.control.step) * accumulation)
        for query, positive in data:
            with accelerator.accumulate(model):
                value = loss(model(query), positive) if call is None else call(loss, model(query), positive)
                accelerator.backward(value)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                logs.append(loss.logs())
                accelerator.log(logs[-1], step=len(logs) - 1)
                if save_at == len(logs):
                    accelerator.save_state(folder)
    last = evaluate()
    if accelerator.log_with:
        accelerator.log({"val_auc": last.auc}, step=len(logs))
        accelerator.end_training()
    loss.finish(model)
    return logs, first, last, [one.detach().clone() for one in model.parameters()]


def summary(batch):
    """A run of two epochs in JSON's types; each rank has ``batch`` rows."""
    logs, first, last, weights = train("online", batch=batch, epochs=2)
    return {"logs": logs, "auc": [first.auc, last.auc], "weights": weights[0].flatten().tolist()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = summary(16)
    write_and_leave(sys.argv[1], found if Accelerator().is_main_process else None)
