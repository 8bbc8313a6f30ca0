// test.export::Scale version 1, written in Python and exported by pytrt export-plugin.
// Fields that it has as Python's class has them; each branch on them, on dims and on types is kept.
#include <pytrtplugins/exported.h>
#ifdef PYTRTPLUGINS_TENSORRT
#include <pytrtplugins/tensorrt.h>
#endif

namespace {

using namespace pytrtplugins;
using namespace pytrtplugins::exported;

PYTRTPLUGINS_IMAGE(0)
PYTRTPLUGINS_KERNEL(k0_scale_float, 0, image0, "scale<float>")
PYTRTPLUGINS_KERNEL(k1_scale_half, 1, image0, "scale<__half>")

// Accepted types and layouts of the inputs and outputs.
Format const kFormats[][2] = {
    {{DType::kFLOAT32, Layout::kLINEAR}, {DType::kFLOAT32, Layout::kLINEAR}},
    {{DType::kFLOAT16, Layout::kLINEAR}, {DType::kFLOAT16, Layout::kLINEAR}},
};

class Scale : public pytrtplugins::Plugin {
public:
    float factor_ = 0.3f;
    bool inverse_ = false;
    std::vector<int64_t> note_ = std::vector<int64_t>{1, 2};
    std::string title_ = "gr\303\266\303\237e \"x\"?";

    void fields(FieldVisitor& visit) override {
        visit("factor", factor_);
        visit("inverse", inverse_);
        visit("note", note_);
        visit("title", title_);
    }

    void validate() const override {
        if (static_cast<long double>(static_cast<double>(factor_)) <= static_cast<long double>(0)) {
            throw pytrtplugins::FieldError(std::string("Scale.factor: expected more than 0, found ") + show(static_cast<double>(factor_)));
        }
    }

    char const* description() const override { return "Element-wise on any number of axes, with attributes."; }
    int32_t nbInputs() const override { return 1; }
    int32_t nbOutputs() const override { return 1; }
    bool runsOn(Device device) const override { return device == kRunsOn; }

    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        if ((inputs[0].size() <= 8)) {
            return {inputs[0]};
        }
        refuseDims("Scale", inputs);
    }

    DType outputType(int32_t index, std::vector<DType> const& inputs) const override {
        if (index == 0) {
            return inputs[0];
        }
        throw PluginError("Scale: no such output, or input types");
    }

    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        return matches(position, descs, kFormats[0], 2, {0, 1});
    }

    void initialize() override {
        k0_scale_float.prepare();
        k1_scale_half.prepare();
    }

    void enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                 void* const* outputs, void* workspace, Stream stream) override {
        static_cast<void>(workspace);
        auto const n_0 = [&] { return fit<long long>(size(inputDescs[0].dims), "long long n"); };
        auto const factor_1 = [&] { return static_cast<float>(static_cast<double>(factor_)); };
        auto const inverse_2 = [&] { return static_cast<bool>(inverse_); };
        int32_t const format = findFormat(kFormats[0], 2, inputDescs, 1, outputDescs, 1);
        if (format == 0) {
            k0_scale_float(stream, Extent{size(inputDescs[0].dims).value(), 1, 1}, Extent{128, 1, 1},
                Dim(0).value(),
                static_cast<char const*>(inputs[0]),
                static_cast<char*>(outputs[0]),
                n_0(),
                factor_1(),
                inverse_2());
            return;
        }
        if (format == 1) {
            k1_scale_half(stream, Extent{size(inputDescs[0].dims).value(), 1, 1}, Extent{128, 1, 1},
                Dim(0).value(),
                static_cast<char const*>(inputs[0]),
                static_cast<char*>(outputs[0]),
                n_0(),
                factor_1(),
                inverse_2());
            return;
        }
        refuseFormat("Scale");
    }
};

PYTRTPLUGINS_REGISTER(Scale, "test.export", "1")

}  // namespace

#ifdef PYTRTPLUGINS_TENSORRT
PYTRTPLUGINS_TENSORRT_LIBRARY
#endif
