"""Imports of every process: the process that all are forked from does them once."""

from importlib import import_module

from subjects import declare_torchvision

declare_torchvision()  # before whoever imports torchvision
for name in ("measure", "growc.modules.grow", "onnxruntime", "timm", "transformers"):
    import_module(name)
