#!/usr/bin/python3
"""torch.distributed's all_reduce over Gloo by size: in place, float32, sum, one thread a process. One JSON line. The peer of
`ddptrain comm`: bench/allreduce.py runs both."""
import argparse, json, os, socket, statistics, time

import torch, torch.distributed as dist


def run(rank, options, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.nproc), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    out = {}
    for size in options.sizes:
        t = torch.ones(size // 4)
        calls, rounds = max(3, min(400, (24 << 20) // size)), []
        for warm in range(6):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(t)
            if warm:
                rounds.append((time.perf_counter() - start) / calls * 1e6)
            t.fill_(1)
        out[size] = statistics.median(rounds)
    if rank == 0:
        print(json.dumps(out))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")])
    options = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(run, (options, port), nprocs=options.nproc)
