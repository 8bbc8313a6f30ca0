// The plugins of user_plugins.py in C++, and one that throws where it is told to.
#include <pytrtplugins/tensorrt.h>

#include <algorithm>
#include <stdexcept>

using namespace pytrtplugins;

namespace driver_tests {

// Claims to run on a GPU: the addresses that TensorRT's part hands over here are the process's own.
class Here : public Plugin {
public:
    bool runsOn(Device) const override { return true; }
};

bool isFloat(TensorDesc const& desc) { return desc.dtype == DType::kFLOAT32 && desc.layout == Layout::kLINEAR; }

// Element-wise, with an attribute.
class Scale : public Here {
public:
    float factor = 2.0f;

    void fields(FieldVisitor& visit) override { visit("factor", factor); }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override { return inputs; }
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        return isFloat(descs[static_cast<size_t>(position)]);
    }
    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs, void*,
                 Stream) override {
        float const* x = static_cast<float const*>(inputs[0]);
        float* y = static_cast<float*>(outputs[0]);
        for (int64_t i = volume(inputDescs[0].dims); i-- > 0;) y[i] = x[i] * factor;
    }
};
PYTRTPLUGINS_REGISTER(Scale, "test.driver", "1")

// Two outputs, the mean of each channel and what differs from it; the sums lie in the workspace.
class MeanAndRest : public Here {
public:
    int32_t nbOutputs() const override { return 2; }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        Dims const& x = inputs[0];
        checkRank(x, 4, "MeanAndRest");
        return {{x[0], x[1]}, {x[0], x[1], x[2] * x[3]}};
    }
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        return isFloat(descs[static_cast<size_t>(position)]);
    }
    size_t workspaceSize(std::vector<TensorDesc> const&, std::vector<TensorDesc> const& outputs) const override {
        return outputs[0].bytes();
    }
    void enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                 void* const* outputs, void* workspace, Stream) override {
        int64_t const maps = volume(outputDescs[0].dims), area = volume(inputDescs[0].dims) / std::max<int64_t>(1, maps);
        float const* x = static_cast<float const*>(inputs[0]);
        float *sums = static_cast<float*>(workspace), *mean = static_cast<float*>(outputs[0]);
        for (int64_t map = 0; map < maps; ++map) {
            sums[map] = 0;
            for (int64_t i = 0; i < area; ++i) sums[map] += x[map * area + i];
            mean[map] = sums[map] / static_cast<float>(area);
            for (int64_t i = map * area; i < (map + 1) * area; ++i) static_cast<float*>(outputs[1])[i] = x[i] - mean[map];
        }
    }
};
PYTRTPLUGINS_REGISTER(MeanAndRest, "test.driver", "1")

// The size of its output depends on the values of its input.
class NonZero : public Here {
public:
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        return {{inputs[0].size(), Dim::symbol("count")}};
    }
    DType outputType(int32_t, std::vector<DType> const&) const override { return DType::kINT64; }
    void enqueue(TensorDesc const*, TensorDesc const*, void const* const*, void* const*, void*, Stream) override {}
};
PYTRTPLUGINS_REGISTER(NonZero, "test.driver", "1")

// A field of each type.
class Everything : public Scale {
public:
    bool flag = true;
    int64_t number = 3;
    std::string text = "edge";
    std::vector<bool> flags{true, false};
    std::vector<int64_t> numbers{1, -2};
    std::vector<float> ratios{0.5f};
    std::vector<std::string> texts{"a", "b"};
    Array table;

    void fields(FieldVisitor& visit) override {
        Scale::fields(visit);
        visit("flag", flag);
        visit("number", number);
        visit("text", text);
        visit("flags", flags);
        visit("numbers", numbers);
        visit("ratios", ratios);
        visit("texts", texts);
        visit("table", table);
    }
};
PYTRTPLUGINS_REGISTER(Everything, "test.driver", "1")

// INT8 with scales of its own.
class Rescale : public Here {
public:
    Int8 int8() const override { return Int8::kREQUANTIZE; }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override { return inputs; }
    void enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                 void* const* outputs, void*, Stream) override {
        int8_t const* x = static_cast<int8_t const*>(inputs[0]);
        float const ratio = inputDescs[0].scale / outputDescs[0].scale;
        for (int64_t i = volume(inputDescs[0].dims); i-- > 0;) {
            float const value = std::min(127.0f, std::max(-128.0f, static_cast<float>(x[i]) * ratio));
            static_cast<int8_t*>(outputs[0])[i] = static_cast<int8_t>(value);
        }
    }
};
PYTRTPLUGINS_REGISTER(Rescale, "test.driver", "1")

// Throws where it is told to.
class Faulty : public Scale {
public:
    std::string where;

    void fields(FieldVisitor& visit) override { visit("where", where); }
    void validate() const override { fail("validate"); }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        fail("output_dims");
        return inputs;
    }
    DType outputType(int32_t, std::vector<DType> const& inputs) const override {
        fail("output_dtypes");
        return inputs[0];
    }
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        fail("supports_format");
        return Scale::supportsFormat(position, descs);
    }
    size_t workspaceSize(std::vector<TensorDesc> const&, std::vector<TensorDesc> const&) const override {
        fail("workspace_size");
        return 0;
    }
    void configure(std::vector<TensorDesc> const&, std::vector<TensorDesc> const&) override { fail("configure"); }
    void initialize() override { fail("initialize"); }
    void enqueue(TensorDesc const*, TensorDesc const*, void const* const*, void* const*, void*, Stream) override {
        fail("enqueue");
        throw 7;
    }

private:
    void fail(std::string const& method) const {
        if (method == where) throw std::out_of_range("wrong in " + method);
    }
};
PYTRTPLUGINS_REGISTER(Faulty, "test.driver", "1")

// Says nothing of a GPU.
class OnlyCpu : public Scale {
public:
    bool runsOn(Device device) const override { return Plugin::runsOn(device); }
};
PYTRTPLUGINS_REGISTER(OnlyCpu, "test.driver", "1")

}  // namespace driver_tests

PYTRTPLUGINS_TENSORRT_LIBRARY
