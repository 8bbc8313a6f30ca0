"""The training engine of ``samples/train_yolov2.py`` and ``samples/train_classifier.py``, independent of the network.

Its input pipeline, in the order in which data flow through it:

- sampler: which photos a step gets, as a function of the seed and the step
- photos: a photo's bytes to its pixels, and what is done with those that do not decode
- staging: host memory of a batch, and its copy to the device
- data: sets of photos with labels; which of them are held back
- loader: what a loader is, and the kinds of loader by name; resident, dataloader, optional.stream: one kind each
- optional.decode_gpu: JPEG files decoded on the GPU
- batch: what a loader gives
- augment: mosaics, crops, colours and holes, planned and drawn on the device
- clock, trace: how long each stage works, and how long a step waits for data

The loop on top of it:

- loop: one step, what stops a run, and what a checkpoint has
- settings: how a run computes, as options
- precision: autocast and loss scale
- optional.graphs: forward and backward as CUDA graphs
- ranks, modes: the processes of a run, and how they share variables
- optional.ray: the same processes on several machines
- schedule: the learning rate, and the averaged weights
- checkpoint: written whole or not at all, in the background

A run and its program:

- recipe: the numbers that decide how a run turns out
- run: data, engine and task put together; lines, results
- curve: the learning curve
- command: the options of a program, and how its ranks start
"""
