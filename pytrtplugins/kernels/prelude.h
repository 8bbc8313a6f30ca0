// What a kernel's source may use besides CUDA's own names; put before it by every compiler. On a device it adds integer
// types, which NVRTC lacks, and a __half that converts from and to float; elsewhere it is host_shim.h.
#pragma once

#ifndef __CUDACC__
#include "host_shim.h"
#else

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#ifndef __CUDA_FP16_H__
struct __half {
    unsigned short bits;

    __half() = default;
    __device__ __half(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
    __device__ operator float() const {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
};

typedef __half half;
#endif

#endif  // __CUDACC__
