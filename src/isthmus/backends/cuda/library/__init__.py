"""Kernels for single ops that no generator makes: products of our own (`gemm.py`), and NVIDIA's cuBLASLt (`cublaslt.py`)."""
