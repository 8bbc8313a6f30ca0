"""The GPU as lowering, planning and runs see it: its driver, arrays and kernels, and how tensors lie in its memory."""
