"""ResNet-50 half as wide by Torch-Pruning, from directory to file.

python prune_resnet.py SOURCE_DIRECTORY OUT.pt
"""

import sys

import torch
import torch_pruning as tp
from transformers import ResNetForImageClassification

model = ResNetForImageClassification.from_pretrained(sys.argv[1]).eval()
pruner = tp.pruner.MagnitudePruner(
    model,
    torch.randn(1, 3, 224, 224),
    importance=tp.importance.MagnitudeImportance(p=2),
    pruning_ratio=0.5,
    output_transform=lambda out: out.logits.sum(),
    ignored_layers=[model.classifier[1]],
)
pruner.step()
torch.save(model.state_dict(), sys.argv[2])
