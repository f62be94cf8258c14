"""Parallel constrained decoding: score a bounded schema instead of generating JSON."""
