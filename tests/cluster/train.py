"""A training under FSDP2, as torchrun starts it: `train.py CONFIG LOAD SAVE STEPS`; `-` is neither.

Tells the loss on the first batch before the first step and behind the last one.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def trained(config, load, save, steps):
    torch.manual_seed(0)
    sizes = json.loads(Path(config).read_text())
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**sizes))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 10)
    done = 0
    if load != "-":
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optim": moments, "step": 0, "schedule": schedule.state_dict()}
        dcp.load(state, checkpoint_id=load)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        schedule.load_state_dict(state["schedule"])
        done = state["step"]
    numbers = torch.Generator().manual_seed(1)
    batches = torch.randint(0, sizes["vocab_size"], (4, 4, 32), generator=numbers)

    def loss(k):
        return model(input_ids=batches[k % 4], labels=batches[k % 4], use_cache=False).loss

    with torch.no_grad():
        first = loss(0).item()
    for k in range(done, done + int(steps)):
        loss(k).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    with torch.no_grad():
        last = loss(0).item()
    if save != "-":
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optim": moments, "step": done + int(steps)}
        dcp.save({**state, "schedule": schedule.state_dict()}, checkpoint_id=save)
    return {"step": done, "first": first, "last": last}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    told = trained(*sys.argv[1:])
    if dist.get_rank() == 0:
        print(json.dumps(told))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads that torch leaves behind abort some processes that go on to their end
