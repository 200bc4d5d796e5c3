"""In the style of StepMesh's test of its waiting kernels: a graph signals a thread of the host by
a flag, the thread makes the request, and the graph waits for its acknowledgement."""

import os
import threading

import fserver_lib as f
import torch

ROUNDS, BUFFERS, ROWS, WIDTH = 24, 3, 8, 64
role = os.environ["DMLC_ROLE"]
gpu = int(os.environ.get("STEPMESH_GPU", "0"))
if role != "scheduler":
    torch.cuda.set_device(gpu)
f.init()

if role == "worker":
    device = f"cuda:{gpu}"
    push = [torch.zeros([ROWS, WIDTH], device=device) for _ in range(BUFFERS)]
    pull = [torch.zeros([ROWS, WIDTH], device=device) for _ in range(BUFFERS)]
    total = torch.zeros([ROWS, WIDTH], device=device)
    f.barrier(False, True)
    signal, ack = (torch.zeros(1, dtype=torch.int64, pin_memory=True) for _ in range(2))
    signal_there, ack_there = f.map_pinned_tensor(signal, gpu), f.map_pinned_tensor(ack, gpu)
    assert signal_there.is_cuda and signal_there.shape == signal.shape
    sequence = torch.zeros(1, dtype=torch.int64, device=device)
    made = []

    def make_requests() -> None:
        for number in range(1, 2 * ROUNDS + 1):
            while signal.item() < number:
                pass
            i = (number - 1) % BUFFERS
            handler = f.push_pull([push[i]], [i], [pull[i]], [i], need_event=False)
            f.wait(handler)
            made.append(handler)
            ack.fill_(number)

    graph = torch.cuda.CUDAGraph()
    ack.fill_(ROUNDS)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        for number in range(ROUNDS):
            i = number % BUFFERS
            push[i].add_(1)
            f.seq_add_one(sequence)
            f.write_flag(signal_there, sequence)
            torch.cuda._sleep(1000)
            f.wait_flag(ack_there, sequence)
            total.add_(pull[i])
        graph.capture_end()
    torch.cuda.synchronize()
    ack.fill_(0)
    thread = threading.Thread(target=make_requests)
    thread.start()
    graph.replay()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    thread.join()
    each = 2 * ROUNDS // BUFFERS  # requests of a buffer; the server doubles
    assert len(made) == 2 * ROUNDS and sequence.item() == 2 * ROUNDS == signal.item()
    assert bool((total == BUFFERS * each * (each + 1)).all()), total[0, 0]
    print("FLAGS ARE RIGHT")
elif role == "server":
    f.barrier(True, False)
    for _ in range(2 * ROUNDS):
        for handler, tensors, _keys in f.get_batch():
            f.respond([tensors[0] * 2], handler)
    torch.cuda.synchronize()
f.stop()
