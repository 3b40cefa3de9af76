"""Self-supervised pretraining on views with random fields, and probes of what was learned (section 4 of the paper).

Images come in (`data`) and become views; a method (`simclr`, or one of `methods`) teaches an encoder from them, driven
by `train`; a linear classifier or nearest neighbours judge the frozen encoder (`probe`). Built on randfield's public
API, and on Lightning, lightly, timm and torchmetrics, which `pip install 'randfield[learn]'` brings.

All randomness is a function of the seed, the epoch and the index of an image or a batch, so neither the number of
processes nor an interruption can change a run.
"""
