// What Region and Yolo share: one launch that applies a table of functions to the values of each box.
#pragma once

#include <pytrtplugins/plugin.h>

#include "kernels.h"

namespace pytrtplugins::layers {

class Head : public Plugin {
public:
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        return sameLayout(position, descs, {DType::kFLOAT32, DType::kFLOAT16});
    }

    bool runsOn(Device device) const override { return device == Device::kCPU || kHasCuda; }

    void configure(std::vector<TensorDesc> const&, std::vector<TensorDesc> const&) override {
        HeadTable made = table();
        if (!(made == mTable)) mTable = std::move(made);  // else what is uploaded stays
    }

    void initialize() override { mTable.upload(); }

    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs, void*,
                 Stream stream) override {
        launchHead(inputDescs[0], inputs[0], outputs[0], mTable, stream);
    }

protected:
    // What is applied to which entries of a box.
    virtual HeadTable table() const = 0;

private:
    HeadTable mTable{1};
};

}  // namespace pytrtplugins::layers
