"""In the style of test_fserver_diff_stage.py: three micro-batches in flight, echoed."""

import os

import fserver_lib as f
import torch

if os.environ.get("STEPMESH_BAKCEND") != "CPU":
    torch.set_default_device("cuda")

STAGES, ROUNDS = 3, 30
role = os.environ["DMLC_ROLE"]
f.init()

if role == "server":
    f.barrier(True, True)
    for _ in range(STAGES * ROUNDS):
        for handler, tensors, _keys in f.get_batch():
            f.respond(tensors, handler, need_event=True)
elif role == "worker":
    f.barrier(include_server=True, include_client=True)
    flight = []
    for i in range(STAGES * ROUNDS):
        stage = i % STAGES
        push = torch.full([4, 1024], float(i), dtype=torch.bfloat16)
        pull = torch.empty([4, 1024], dtype=torch.bfloat16)
        handler = f.push_pull([push], [stage], [pull], [stage | 1 << 24], need_event=True)
        flight.append((handler, push, pull))
        if len(flight) == STAGES:
            handler, push, pull = flight.pop(0)
            f.wait(handler)
            assert torch.equal(push, pull)
    for handler, push, pull in flight:
        f.wait(handler)
        assert torch.equal(push, pull)
    print("STAGES ARE RIGHT")
f.stop()
