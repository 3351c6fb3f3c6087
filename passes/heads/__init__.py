"""Attention heads: groups inserted, packed projections unpacked, heads pooled and regrouped."""
