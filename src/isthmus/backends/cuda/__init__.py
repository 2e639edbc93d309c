"""NVIDIA GPUs. Nothing here is imported, and no driver looked for, before a GPU is asked for."""
