// Stands in for CUDA's header of this name on machines without CUDA: TensorRT's headers need these two names of it.
#pragma once

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
