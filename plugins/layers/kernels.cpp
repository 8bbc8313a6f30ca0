#include "kernels.h"

#include "launches.h"

namespace pytrtplugins::layers {

bool sameLayout(int32_t position, std::vector<TensorDesc> const& descs, std::vector<DType> const& types) {
    TensorDesc const& desc = descs[static_cast<size_t>(position)];
    for (DType type : types) {
        if (desc.dtype == type) return desc.dtype == descs[0].dtype && desc.layout == descs[0].layout;
    }
    return false;
}

void launchReorg(TensorDesc const& desc, void const* x, void* y, int stride, bool reverse, Stream stream) {
#ifdef PYTRTPLUGINS_CUDA
    if (stream.device == Device::kCUDA) return cuda::launchReorg(desc, x, y, stride, reverse, stream.handle);
#endif
    reorgOn(desc, x, y, stride, reverse, stream.handle);
}

void launchHead(TensorDesc const& desc, void const* x, void* y, HeadTable const& table, Stream stream) {
#ifdef PYTRTPLUGINS_CUDA
    if (stream.device == Device::kCUDA) return cuda::launchHead(desc, x, y, table, stream.handle);
#endif
    headOn(desc, x, y, table, Device::kCPU, stream.handle);
}

void HeadTable::add(int32_t kind, int begin, int end) {
    if (kind == kSOFTMAX && begin < end) mSlots.insert(mSlots.end(), {kind, begin, end});
    for (int entry = begin; kind != kSOFTMAX && entry < end; ++entry) {
        mSlots.insert(mSlots.end(), {kind, entry, entry + 1});
    }
}

void HeadTable::upload() {
#ifdef PYTRTPLUGINS_CUDA
    mUploaded = cuda::upload(mSlots);
#endif
}

int32_t const* HeadTable::on(Device device) const {
    if (device == Device::kCPU) return mSlots.data();
    if (!mUploaded) throw PluginError("Region: enqueue on a GPU before initialize, or without a GPU");
    return mUploaded.get();
}

}  // namespace pytrtplugins::layers
