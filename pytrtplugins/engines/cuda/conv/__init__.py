"""Convolutions: the problem, its kernels of this package and of cuDNN, the choice by measuring."""
