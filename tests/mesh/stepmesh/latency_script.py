"""In the style of StepMesh's latency benchmark and of its vLLM connector: the stamps of every
handler, a ring of buffers, and the scheduler as a process that one server starts."""

import os
import subprocess

import fserver_lib as f
import torch

if os.environ.get("STEPMESH_BAKCEND") != "CPU":
    torch.set_default_device("cuda")

ROUNDS, STAGES, ROWS, WIDTH = 12, 3, 8, 64
role = os.environ["DMLC_ROLE"]
scheduler = None
if role == "server":
    scheduler = subprocess.Popen(
        [
            "python",
            "-c",
            "import os, fserver_lib as ps; os.environ['DMLC_ROLE'] = 'scheduler'; "
            "os.environ['DMLC_INTERFACE'] = 'no_such_card'; ps.init(); ps.stop()",
        ],
        env=os.environ.copy(),
    )
notify = f.SimpleNotify()
notify.init()
f.init()

if role == "server":
    out = torch.zeros([ROWS, WIDTH], dtype=torch.bfloat16)
    f.barrier(include_server=True, include_worker=False)
    for i in range(ROUNDS * STAGES):
        if i % 2:
            batch = f.get_batch()
        else:
            notify.block_now_stream_and_get_batch()
            batch = notify.get_future_batch_data()
        handler, (tokens, count), _keys = batch[0]
        out[: tokens.size(0)].copy_(tokens * count.item())
        f.respond_vec(out, [tokens], [handler])
else:
    f.barrier(include_server=False, include_client=True)
    push = [torch.rand([ROWS, WIDTH]).to(torch.bfloat16) for _ in range(STAGES)]
    pull = [torch.empty_like(one) for one in push]
    count = torch.tensor([2], dtype=torch.int32)
    flight = []
    traces = []

    def finish() -> None:
        stage, handler, start, handlers = flight.pop(0)
        if stage == 0:
            notify.stream_wait_event(handler)
            notify.wait_event_done()
        else:
            f.wait(handler, timeout_ms=50000)
        stamps = [f.fetch_trace(one) for one in handlers]
        assert len(stamps) == 3
        for one in stamps:
            assert one == sorted(one) and start <= one[0] and one[7] <= f.get_nanosecond()
        traces.append(stamps + [f.fetch_trace(one) for one in f.get_all_handlers(handler)])
        assert torch.equal(pull[stage], push[stage] * 2)

    for i in range(ROUNDS * STAGES):
        if i >= STAGES:
            finish()
        stage, start = i % STAGES, f.get_nanosecond()
        handler = f.push_pull([push[stage], count], [stage, stage + 8], [pull[stage]], [stage])
        flight.append((stage, handler, start, f.get_all_handlers(handler)))
    while flight:
        finish()
    assert len(traces) == ROUNDS * STAGES
    print("STAMPS ARE RIGHT")
f.stop()
if scheduler is not None:
    assert scheduler.wait(60) == 0
