// The same class as Faulty of faulty.py, written in C++.
#include <pytrtplugins/plugin.h>

#include <cstring>

using namespace pytrtplugins;

namespace {

class Faulty : public Plugin {
public:
    static constexpr DType types[] = {DType::kFLOAT32, DType::kFLOAT16, DType::kBFLOAT16, DType::kINT8,
                                      DType::kUINT8,   DType::kINT32,   DType::kINT64,    DType::kBOOL};
    int64_t fault = 0, of = -1;

    void fields(FieldVisitor& visit) override {
        visit("fault", fault);
        visit("of", of);
    }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override { return inputs; }
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override {
        TensorDesc const& desc = descs[static_cast<size_t>(position)];
        bool const accepted = of == -1 || desc.dtype == types[0] || desc.dtype == types[of];
        return accepted && desc.dtype == descs[0].dtype && desc.layout == Layout::kLINEAR;
    }
    void enqueue(TensorDesc const* inputDescs, TensorDesc const*, void const* const* inputs, void* const* outputs, void*,
                 Stream) override {
        size_t const size = itemsize(inputDescs[0].dtype), count = static_cast<size_t>(Dim(volume(inputDescs[0].dims)).value());
        int64_t const what = of != -1 && inputDescs[0].dtype == types[of] ? fault : 0;
        char const* x = static_cast<char const*>(inputs[0]);
        char* y = static_cast<char*>(outputs[0]);
        for (size_t i = 0; i < count; ++i) {
            size_t const last = count - 1;
            if (what == 2 && i == last) continue;
            std::memcpy(y + i * size, x + (what == 1 ? last - i : what == 4 && i == last ? i + 4096 : i) * size, size);
            if (what == 3 && i == last) std::memcpy(y + (i + 4096) * size, y + i * size, size);
            if (what == 5) std::memset(const_cast<char*>(x) + i * size, 1, size);
        }
    }
};
PYTRTPLUGINS_REGISTER(Faulty, "in.cpp", "1")

}  // namespace
