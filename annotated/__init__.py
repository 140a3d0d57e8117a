"""The Transformer of *Attention Is All You Need* (Vaswani et al., 2017), one file for each notebook that derives it."""

__version__ = "0.1.0"
