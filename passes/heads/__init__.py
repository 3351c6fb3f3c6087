"""Heads that are no axis of their own: groups put in, projections unpacked, heads pooled and regrouped."""
