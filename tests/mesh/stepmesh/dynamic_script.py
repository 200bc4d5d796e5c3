"""In the style of *_dynamic.py: rows change with every request, buffers are registered, respond_vec
answers, and every request is traced."""

import os
import random

import fserver_lib as f
import torch

if os.environ.get("STEPMESH_BAKCEND") != "CPU":
    torch.set_default_device("cuda")

ROUNDS, ROWS, WIDTH = 60, 128, 719
role = os.environ["DMLC_ROLE"]
workers = int(os.environ["DMLC_NUM_WORKER"])
servers = int(os.environ["DMLC_NUM_SERVER"])
f.init()

if role == "server":
    landing = torch.zeros([workers, ROWS, WIDTH], dtype=torch.bfloat16)
    f.register_recv_buffer(landing, list(range(workers)), [w << 16 for w in range(workers)])
    f.barrier(True, True)
    out = torch.zeros([ROWS, WIDTH], dtype=torch.bfloat16)
    for _ in range(ROUNDS):
        batch = f.get_batch()
        assert len(batch) == workers
        for w, (_handler, tensors, keys) in enumerate(batch):
            assert keys == [w << 16]
            assert tensors[0].data_ptr() == landing[w].data_ptr()
        first = batch[0][1][0]
        out.copy_(landing[0] * 2)
        assert torch.equal(out[: first.size(0)], first * 2)
        f.respond_vec(out, [one[1][0] for one in batch], [one[0] for one in batch])
elif role == "worker":
    rank = int(os.environ["DMLC_NODE_RANK"])
    f.barrier(True, True)
    random.seed(7)  # all workers have the same number of rows: prefixes of one buffer answer them
    for _ in range(ROUNDS):
        rows = random.randint(1, ROWS)
        torch.manual_seed(rows)
        push = torch.rand([rows, WIDTH]).to(torch.bfloat16)
        pull = [torch.empty_like(push) for _ in range(servers)]
        handler = f.push_pull([push], [rank << 16], pull, [1 << 24] * servers)
        f.wait(handler, 500000)
        stamps = f.fetch_trace(handler)
        assert len(stamps) == 8 and stamps == sorted(stamps) and stamps[7] <= f.get_nanosecond()
        for one in pull:
            assert torch.equal(one, push * 2)
    print("ROWS ARE RIGHT")
f.stop()
