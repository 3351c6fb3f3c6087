"""What every process imports: the one that they are forked from does it once."""

from importlib import import_module

from subjects import declare_torchvision

declare_torchvision()  # before whoever imports torchvision
for name in ("measure", "growc.modules.grow", "onnxruntime", "timm", "transformers"):
    import_module(name)
