// Plugins for the tests: what a user would write, and what goes wrong.
#include <pytrtplugins/plugin.h>
#include <pytrtplugins/run.h>

#include <cstring>
#include <stdexcept>
#include <thread>

using namespace pytrtplugins;

namespace acme {

// Element-wise, with an attribute.
class Scale : public Plugin {
public:
    float factor = 2.0f;

    void fields(FieldVisitor& visit) override { visit("factor", factor); }
    char const* description() const override { return "Multiply by a factor."; }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override { return inputs; }
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        TensorDesc const& desc = descs[static_cast<size_t>(position)];
        return desc.dtype == DType::kFLOAT32 && desc.layout == Layout::kLINEAR;
    }
    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs, void*,
                 Stream) override {
        float const* x = static_cast<float const*>(inputs[0]);
        float* y = static_cast<float*>(outputs[0]);
        for (int64_t i = volume(inputDescs[0].dims); i-- > 0;) y[i] = x[i] * factor;
    }
};
PYTRTPLUGINS_REGISTER(Scale, "acme", "1")

// Two inputs, two outputs of other types and dims, a workspace: the sums of pairs of channels, and their signs.
class PairSums : public Plugin {
public:
    int32_t nbInputs() const override { return 2; }
    int32_t nbOutputs() const override { return 2; }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        checkRank(inputs[0], 4, "PairSums");
        checkDivisible(inputs[0][1], 2, "PairSums: channels");
        if (text(inputs[0]) != text(inputs[1])) throw DimsError("PairSums: the inputs must have the same dims");
        Dims out = inputs[0];
        out[1] = out[1] / 2;
        return {out, out};
    }
    DType outputType(int32_t index, std::vector<DType> const& inputs) const override {
        return index == 0 ? inputs[0] : DType::kINT8;
    }
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        TensorDesc const& desc = descs[static_cast<size_t>(position)];
        return desc.dtype == (position == 3 ? DType::kINT8 : DType::kFLOAT32) && desc.layout == Layout::kLINEAR;
    }
    size_t workspaceSize(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const&) const override {
        return inputs[0].bytes();
    }
    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs,
                 void* workspace, Stream) override {
        int64_t const images = inputDescs[0].dims[0].value(), channels = inputDescs[0].dims[1].value();
        int64_t const places = volume(inputDescs[0].dims) / std::max<int64_t>(1, images * channels);
        float const *a = static_cast<float const*>(inputs[0]), *b = static_cast<float const*>(inputs[1]);
        float *sum = static_cast<float*>(workspace), *y = static_cast<float*>(outputs[0]);
        int8_t* sign = static_cast<int8_t*>(outputs[1]);
        for (int64_t i = 0; i < images * channels * places; ++i) sum[i] = a[i] + b[i];
        for (int64_t pair = 0; pair < images * channels / 2; ++pair) {
            for (int64_t place = 0; place < places; ++place) {
                float const value = sum[2 * pair * places + place] + sum[(2 * pair + 1) * places + place];
                y[pair * places + place] = value;
                sign[pair * places + place] = static_cast<int8_t>((value > 0) - (value < 0));
            }
        }
    }
};
PYTRTPLUGINS_REGISTER(PairSums, "acme", "2")

// A field of each type.
class Everything : public Scale {
public:
    bool flag = true;
    int64_t count = -3;
    std::string label = "größe";
    std::vector<bool> flags{true, false};
    std::vector<int64_t> counts{1, -2, int64_t{1} << 40};
    std::vector<float> weights{0.5f};
    std::vector<std::string> labels{"a", ""};
    Array table;

    void fields(FieldVisitor& visit) override {
        Scale::fields(visit);
        visit("flag", flag);
        visit("count", count);
        visit("label", label);
        visit("flags", flags);
        visit("counts", counts);
        visit("weights", weights);
        visit("labels", labels);
        visit("table", table);
    }
};
PYTRTPLUGINS_REGISTER(Everything, "acme", "1")

// Throws where it is told to.
class Faulty : public Scale {
public:
    std::string where, kind = "plugin";

    void fields(FieldVisitor& visit) override {
        visit("where", where);
        visit("kind", kind);
    }
    void validate() const override { fail("validate"); }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        fail("output_dims");
        return inputs;
    }
    DType outputType(int32_t, std::vector<DType> const& inputs) const override {
        fail("output_dtypes");
        return inputs[0];
    }
    void configure(std::vector<TensorDesc> const&, std::vector<TensorDesc> const&) override { fail("configure"); }
    size_t workspaceSize(std::vector<TensorDesc> const&, std::vector<TensorDesc> const&) const override {
        fail("workspace_size");
        return 0;
    }
    void initialize() override { fail("initialize"); }
    void enqueue(TensorDesc const*, TensorDesc const*, void const* const*, void* const*, void*, Stream) override {
        fail("enqueue");
    }

private:
    void fail(std::string const& method) const {
        if (method != where) return;
        if (kind == "dims") throw DimsError("bad dims in " + method, {{"expected", 7}});
        if (kind == "field") throw FieldError("bad field in " + method);
        if (kind == "registry") throw RegistryError("bad key in " + method);
        if (kind == "serialization") throw SerializationError("bad bytes in " + method);
        if (kind == "foreign") throw std::out_of_range("index 9 in " + method);
        throw PluginError("bad plugin in " + method);
    }
};
PYTRTPLUGINS_REGISTER(Faulty, "acme", "1")

}  // namespace acme

// Run a plugin, whoever wrote it, on float32 data from a thread of our own; gives the class of what it threw.
extern "C" int call(Plugin const* plugin, int64_t const* dims, int32_t rank, float const* x, float* y, char* message) {
    int kind = 0;
    std::thread([&] {
        try {
            TensorDesc input{Dims(dims, dims + rank)};
            std::vector<TensorDesc> const outputs = describeOutputs(*plugin, {input});
            void const* const inputs[] = {x};
            void* const written[] = {y};
            run(*plugin, {input}, outputs, inputs, written);
        } catch (DimsError const& error) {
            kind = 1;
            std::strcpy(message, error.what());
        } catch (FieldError const& error) {
            kind = 3;
            std::strcpy(message, error.what());
        } catch (PluginError const& error) {
            kind = 2;
            std::strcpy(message, error.what());
        }
    }).join();
    return kind;
}


// Enqueue a plugin, whoever wrote it, on addresses of a GPU.
extern "C" void call_on_gpu(Plugin const* plugin, int64_t count, void const* x, void* y, void* workspace, void* stream) {
    std::unique_ptr<Plugin> const mine = plugin->clone();
    TensorDesc const desc{{count}};
    mine->configure({desc}, {desc});
    mine->initialize();
    void const* const inputs[] = {x};
    void* const outputs[] = {y};
    mine->enqueue(&desc, &desc, inputs, outputs, workspace, Stream{Device::kCUDA, stream});
    mine->terminate();
}
