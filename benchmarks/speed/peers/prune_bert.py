"""BERT-base a quarter narrower by Torch-Pruning, from directory to file.

python prune_bert.py SOURCE_DIRECTORY OUT.pt
"""

import sys

import torch
import torch_pruning as tp
from transformers import BertForSequenceClassification

model = BertForSequenceClassification.from_pretrained(sys.argv[1]).eval()
inputs = torch.randint(0, 30000, (1, 16))
heads = {layer.attention.self: layer.attention.self.num_attention_heads for layer in model.bert.encoder.layer}
qkv = {part: count for att, count in heads.items() for part in (att.query, att.key, att.value)}
pruner = tp.pruner.MagnitudePruner(
    model,
    inputs,
    importance=tp.importance.MagnitudeImportance(p=2),
    pruning_ratio=0.25,
    num_heads=qkv,
    prune_num_heads=False,
    output_transform=lambda out: out.logits.sum(),
    ignored_layers=[model.classifier],
)
pruner.step()
torch.save(model.state_dict(), sys.argv[2])
