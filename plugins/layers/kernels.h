// The work of darknet's layers: the kernels of pytrtplugins/kernels, launched on a CPU or a GPU.
#pragma once

#include <pytrtplugins/plugin.h>

#include <memory>
#include <vector>

// Of the layers. A library for Python takes another one, since Python's classes have this.
#ifndef PYTRTPLUGINS_NAMESPACE
#define PYTRTPLUGINS_NAMESPACE "darknet"
#endif

namespace pytrtplugins::layers {

#ifdef PYTRTPLUGINS_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

// Linear or NHWC, of one of these types, and like the first tensor.
bool sameLayout(int32_t position, std::vector<TensorDesc> const& descs, std::vector<DType> const& types);

// reorg.cu: x is of a type of 1, 2 or 4 bytes.
void launchReorg(TensorDesc const& desc, void const* x, void* y, int stride, bool reverse, Stream stream);

// head.cu's table: what is done to which entries of a box.
class HeadTable {
public:
    enum Kind : int32_t { kAS_IS, kLOGISTIC, kSOFTMAX, kSTRETCHED = 4 };  // the last goes with the first two

    explicit HeadTable(int entries, float factor = 1.0f, float summand = 0.0f)
        : mEntries(entries), mFactor(factor), mSummand(summand) {}

    void add(int32_t kind, int begin, int end);
    void upload();  // for a GPU, where there is one; copies of the table share what is there

    int entries() const { return mEntries; }
    float factor() const { return mFactor; }  // of the stretched entries
    float summand() const { return mSummand; }
    int count() const { return static_cast<int>(mSlots.size() / 3); }
    int32_t const* on(Device device) const;
    bool operator==(HeadTable const& other) const {
        return mEntries == other.mEntries && mFactor == other.mFactor && mSummand == other.mSummand
               && mSlots == other.mSlots;
    }

private:
    int mEntries;
    float mFactor, mSummand;
    std::vector<int32_t> mSlots;
    std::shared_ptr<int32_t const> mUploaded;
};

// head.cu: x is float32 or float16.
void launchHead(TensorDesc const& desc, void const* x, void* y, HeadTable const& table, Stream stream);

#ifdef PYTRTPLUGINS_CUDA
namespace cuda {
void launchReorg(TensorDesc const& desc, void const* x, void* y, int stride, bool reverse, void* stream);
void launchHead(TensorDesc const& desc, void const* x, void* y, HeadTable const& table, void* stream);
std::shared_ptr<int32_t const> upload(std::vector<int32_t> const& values);
}  // namespace cuda
#endif

}  // namespace pytrtplugins::layers
