"""As users of AdaPM write it: a scheduler and nodes as processes, workers as threads."""

import multiprocessing
import os
import sys
import threading

import adapm
import numpy as np
import torch

KEYS, LENGTH, NODES, THREADS = 60, 3, 2, 2


def place(role):
    os.environ["DMLC_NUM_SERVER"] = str(NODES)
    os.environ["DMLC_ROLE"] = role
    os.environ["DMLC_PS_ROOT_URI"] = "127.0.0.1"
    os.environ["DMLC_PS_ROOT_PORT"] = sys.argv[1]


def scheduler():
    place("scheduler")
    adapm.scheduler(KEYS, THREADS)


def work(kv):
    kv.begin_setup()
    kv.end_setup()
    keys = torch.LongTensor([1, 2, 50])
    kv.intent(keys, kv.current_clock() + 1, kv.current_clock() + 3)
    kv.advance_clock()
    kv.wait_sync()
    for _ in range(10):
        kv.push(keys, torch.ones(9), True)
    kv.waitall()
    ts = kv.push(np.array([7]), np.ones(5, dtype=np.float32), True)
    kv.wait(ts)
    for _ in range(2):
        kv.wait_sync()
        kv.barrier()
    values = np.zeros(9, dtype=np.float32)
    ts = kv.pull(np.array([50, 1, 2]), values, True)
    kv.wait(ts)
    long = torch.zeros(5)
    kv.pull(torch.LongTensor([7]), long)
    right = (values == 10 * NODES * THREADS).all() and (long == NODES * THREADS).all()
    sample = kv.prepare_sample(K=4, start=kv.current_clock())
    drawn, rows = torch.zeros(4, dtype=torch.int64), torch.zeros(12)
    kv.pull_sample(sample, drawn, rows)
    right = right and bool((drawn < 30).all()) and 7 not in drawn.tolist()
    kv.set(np.array([3]), np.full(LENGTH, 5, dtype=np.float32))
    kv.wait_replica_sync()
    right = right and kv.get_key_size(7) == 5 and kv.get_key_size() == 3 and kv.num_keys == KEYS
    kv.barrier()
    kv.finalize()
    print("ROWS ARE RIGHT" if right else f"{values} {long} {drawn}", flush=True)


def node():
    place("server")
    adapm.setup(KEYS, THREADS, "all", 4)
    lengths = torch.ones(KEYS) * LENGTH
    lengths[7] = 5
    server = adapm.Server(lengths)
    server.enable_sampling_support(
        scheme="local", with_replacement=True, distribution="log-uniform", min=0, max=30
    )
    threads = [
        threading.Thread(target=work, args=(adapm.Worker(i, server),)) for i in range(THREADS)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    server.barrier()
    assert 0 <= server.my_rank() < NODES
    server.shutdown()


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[2])
    processes = [multiprocessing.Process(target=one) for one in [scheduler] + [node] * NODES]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    sys.exit(any(one.exitcode for one in processes))
