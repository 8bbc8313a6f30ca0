"""This engine's own convolutions: with Hopper's matrix instructions, the portable ones or none, and a first layer with its pool.

They run on the NHWC tensors of ``format.py`` as they are: no padded copies, any distance between pixels, so that a
tensor may be a run of channels of a concat. See ``shape.py`` for what they can compute, ``packing.py`` for how weights
lie, ``tactics.py`` for the choices, ``launcher.py`` for running one, and ``provider.py`` for the engine's view.
"""
