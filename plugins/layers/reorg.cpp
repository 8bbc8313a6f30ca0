// darknet's reorg: the passthrough of YOLOv2. The rules are those of pytrtplugins/layers/reorg.py.
#include <pytrtplugins/plugin.h>

#include "kernels.h"

namespace pytrtplugins::layers {

class Reorg : public Plugin {
public:
    int64_t stride = 1;
    bool reverse = false;

    void fields(FieldVisitor& visit) override {
        visit("stride", stride);
        visit("reverse", reverse);
    }

    void validate() const override {
        if (stride < 1) throw FieldError("Reorg.stride: expected at least 1, found " + std::to_string(stride));
    }

    char const* description() const override { return "Rearrange blocks of pixels into channels, in darknet's order."; }

    Int8 int8() const override { return Int8::kPASS_THROUGH; }

    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        Dims const& x = inputs[0];
        checkRank(x, 4, "Reorg");
        int64_t const s = stride;
        checkDivisible(x[1], s * s, "Reorg: channels");
        if (reverse) return {{x[0], x[1] / (s * s), x[2] * s, x[3] * s}};
        checkDivisible(x[2], s, "Reorg: height");
        checkDivisible(x[3], s, "Reorg: width");
        return {{x[0], x[1] * (s * s), x[2] / s, x[3] / s}};
    }

    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        return sameLayout(position, descs, {DType::kFLOAT32, DType::kFLOAT16, DType::kINT8});
    }

    bool runsOn(Device device) const override { return device == Device::kCPU || kHasCuda; }

    void configure(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const&) override {
        Dims const& x = inputs[0].dims;
        Dim const size = x[1] * x[2] * x[3];
        if (size.isConstant() && size.value() >= int64_t{1} << 31) {
            throw DimsError("Reorg: one image has " + size.text() + " values; the kernel takes fewer than 2^31",
                            {{"found", size.value()}});
        }
    }

    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs, void*,
                 Stream stream) override {
        launchReorg(inputDescs[0], inputs[0], outputs[0], static_cast<int>(stride), reverse, stream);
    }
};

PYTRTPLUGINS_REGISTER(Reorg, PYTRTPLUGINS_NAMESPACE, "1")

}  // namespace pytrtplugins::layers
