"""The benchmarks are a contract: peers and us in one run, on the same photographs, losses published beside wins.

    measure      contenders take turns at a stopwatch; a ratio is taken within a round; targets become verdicts
    cases        what is compared: warps, colour, fields, SimCLR views; every peer as its own documentation uses it
    scaling      our cost against image size, batch, gamma, atoms and workers, with peak memory
    accelerator  the batched pipeline on a GPU; needs torch and torchvision only
    report       where and when it ran; JSON, Markdown, the tables of README and docs
    charts       the same numbers as pictures

`python -m benchmarks --help` says how to run them. `measure`, `report` and `accelerator` import nothing but torch.
"""

import os

# AlbumentationsX looks for a newer version of itself on import and counts its users; a benchmark stays off the network.
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
os.environ.setdefault("ALBUMENTATIONS_OFFLINE", "1")
# Peers multiply matrices by NumPy's OpenBLAS, which reads its number of threads when it is loaded and never again.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The profiler, which counts memory, announces itself at every start.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
