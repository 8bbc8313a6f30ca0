// Found in place of CUDA's header where a kernel is compiled for a CPU.
#include "../host_shim.h"
