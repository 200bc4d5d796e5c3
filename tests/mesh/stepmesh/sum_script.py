"""In the style of StepMesh's test_fserver.py: three tensors are pushed, their sum is pulled."""

import os

import fserver_lib as f
import torch

if os.environ.get("STEPMESH_BAKCEND") != "CPU":
    torch.set_default_device("cuda")

role = os.environ["DMLC_ROLE"]
f.init()

if role == "server":
    for _ in range(20):
        batches = f.get_batch()
        for handler, tensors, keys in batches:
            assert keys == [0, 1, 2], keys
            f.respond([torch.stack(tensors).sum(0)], handler)
elif role == "worker":
    rank = int(os.environ["DMLC_NODE_RANK"])
    servers = int(os.environ["DMLC_NUM_SERVER"])
    for i in range(20):
        push = [torch.rand([1, 8192]) + rank + i for _ in range(3)]
        pull = [torch.zeros([1, 8192]) for _ in range(servers)]
        handler = f.push_pull(push, [0, 1, 2], pull, [0] * servers)
        assert f.get_all_handlers(handler) == [handler + j for j in range(4)]
        f.wait(handler)
        for one in pull:
            assert torch.allclose(one, sum(push)), (one, sum(push))
    print("SUMS ARE RIGHT")
f.stop()
