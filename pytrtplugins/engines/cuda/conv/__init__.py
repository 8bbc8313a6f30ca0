"""Convolutions: the problem, kernels of this package, cuDNN and cuBLASLt, and their choice by timing."""
