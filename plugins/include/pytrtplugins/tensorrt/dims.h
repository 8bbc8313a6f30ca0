// A plugin's shape rule, traced with symbolic dims and written as TensorRT's dimension expressions.
#pragma once

#include <NvInferRuntime.h>

#include <map>
#include <string>
#include <vector>

#include "../plugin.h"

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

using Leaves = std::map<std::string, nvinfer1::IDimensionExpr const*>;

// An input's dims: those that TensorRT knows are numbers, so that rules such as divisibility are checked on them.
inline Dims readExprs(nvinfer1::DimsExprs const& exprs, std::string const& prefix, Leaves& leaves) {
    Dims dims;
    for (int32_t axis = 0; axis < exprs.nbDims; ++axis) {
        if (exprs.d[axis]->isConstant()) {
            dims.push_back(static_cast<int64_t>(exprs.d[axis]->getConstantValue()));
        } else {
            std::string const name = prefix + std::to_string(axis);
            leaves.emplace(name, exprs.d[axis]);
            dims.push_back(Dim::symbol(name));
        }
    }
    return dims;
}

inline nvinfer1::IDimensionExpr const* writeExpr(Dim const& dim, Leaves const& leaves, nvinfer1::IExprBuilder& builder) {
    using Operation = nvinfer1::DimensionOperation;
    auto const checked = [&](nvinfer1::IDimensionExpr const* expr) {
        if (!expr) throw DimsError("TensorRT refuses the dim " + dim.text());
        return expr;
    };
    if (dim.isConstant()) return checked(builder.constant(dim.value()));
    if (!dim.operation()) {
        auto const leaf = leaves.find(dim.symbolName());
        if (leaf == leaves.end()) {
            throw DimsError("dim '" + dim.symbolName()
                            + "' of an output is not made of the inputs' dims: its size depends on the inputs' values, which "
                              "TensorRT does not take from this adapter.\nDo: give the output its largest size, and the "
                              "number of valid entries as a second output");
        }
        return leaf->second;
    }
    auto const* const left = writeExpr(dim.left(), leaves, builder);
    auto const* const right = writeExpr(dim.right(), leaves, builder);
    switch (dim.operation()) {
        case '+': return checked(builder.operation(Operation::kSUM, *left, *right));
        case '-': return checked(builder.operation(Operation::kSUB, *left, *right));
        case '*': return checked(builder.operation(Operation::kPROD, *left, *right));
        default: break;
    }
    auto const* const quotient = checked(builder.operation(Operation::kFLOOR_DIV, *left, *right));
    if (dim.operation() == '/') return quotient;
    auto const* const multiple = checked(builder.operation(Operation::kPROD, *quotient, *right));
    return checked(builder.operation(Operation::kSUB, *left, *multiple));  // a % b = a - (a / b) * b
}

// Write each output's dims as expressions of the inputs'. Free dims of different inputs count as different sizes; if the
// rule refuses that, as one that demands equal batches does, dims at the same axis are taken for equal: whether they
// are is checked again when they are known.
inline void writeOutputDims(Plugin const& plugin, nvinfer1::DimsExprs const* inputs, int32_t nbInputs,
                            nvinfer1::DimsExprs* outputs, int32_t nbOutputs, nvinfer1::IExprBuilder& builder) {
    auto const trace = [&](bool shared, Leaves& leaves) {
        std::vector<Dims> dims;
        for (int32_t i = 0; i < nbInputs; ++i) {
            dims.push_back(readExprs(inputs[i], shared ? "d" : "d" + std::to_string(i) + "_", leaves));
        }
        return checkedOutputDims(plugin, dims);
    };
    Leaves leaves;
    std::vector<Dims> dims;
    try {
        dims = trace(false, leaves);
    } catch (DimsError const& first) {
        leaves.clear();
        try {
            dims = trace(true, leaves);
        } catch (DimsError const&) {
            throw first;
        }
    }
    if (static_cast<int32_t>(dims.size()) != nbOutputs) throw DimsError("TensorRT expects another number of outputs");
    for (int32_t i = 0; i < nbOutputs; ++i) {
        Dims const& out = dims[static_cast<size_t>(i)];
        if (out.size() > static_cast<size_t>(nvinfer1::Dims::MAX_DIMS)) throw DimsError("more axes than TensorRT has");
        outputs[i].nbDims = static_cast<int32_t>(out.size());
        for (size_t axis = 0; axis < out.size(); ++axis) outputs[i].d[axis] = writeExpr(out[axis], leaves, builder);
    }
}

}  // namespace tensorrt
}  // namespace pytrtplugins
