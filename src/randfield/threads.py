"""The samples of a batch side by side on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

__all__ = ["in_threads"]


def in_threads(work: Callable[[int], None], items: Sequence[int]) -> None:
    """Do all items, each of PyTorch's threads one: quicker than all threads at one image, which is too small."""
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        for item in items:
            work(item)
        return
    graph, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()  # a thread's own, like its count

    def one(item: int) -> None:
        with torch.inference_mode(inference), torch.set_grad_enabled(graph):
            work(item)

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(one, items))
    finally:
        torch.set_num_threads(before)
