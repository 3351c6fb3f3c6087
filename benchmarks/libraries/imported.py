"""What every process imports: the one that they are forked from does it once."""

import subjects

subjects.declare_torchvision()

import measure  # noqa: E402, F401
import onnxruntime  # noqa: E402, F401
import timm  # noqa: E402, F401
import transformers  # noqa: E402, F401

import growc.modules.grow  # noqa: E402, F401
