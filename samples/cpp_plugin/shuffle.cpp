// Interleaves the channels of `groups` groups: the layer of docs/how-to/cpp.md.
#include <pytrtplugins/plugin.h>

using namespace pytrtplugins;

class ChannelShuffle : public Plugin {
public:
    int64_t groups = 2;

    void fields(FieldVisitor& visit) override { visit("groups", groups); }

    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        checkRank(inputs[0], 4, "ChannelShuffle");
        checkDivisible(inputs[0][1], groups, "ChannelShuffle: channels");
        return inputs;
    }

    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        return descs[position].dtype == DType::kFLOAT32 && descs[position].layout == Layout::kLINEAR;
    }

    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs, void*,
                 Stream) override {
        Dims const& dims = inputDescs[0].dims;
        int64_t const n = dims[0].value(), c = dims[1].value(), area = dims[2].value() * dims[3].value();
        auto const x = static_cast<float const*>(inputs[0]);
        auto const y = static_cast<float*>(outputs[0]);
        for (int64_t i = 0; i < n * c * area; ++i) {
            int64_t const channel = i / area % c, from = channel % groups * (c / groups) + channel / groups;
            y[i] = x[(i / area / c * c + from) * area + i % area];
        }
    }
};
PYTRTPLUGINS_REGISTER(ChannelShuffle, "acme", "1")
