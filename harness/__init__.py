"""Gymnasium-style benchmark and training harness for LLM agents."""

__version__ = "0.1.0"
