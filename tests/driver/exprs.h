// Dimension expressions as TensorRT's builder would make them, with values for the dims that are free.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace driver {

class ExprValue final : public nvinfer1::apiv::VDimensionExpr {
public:
    ExprValue(int64_t value, bool constant, bool sizeTensor)
        : mValue(value), mConstant(constant), mSizeTensor(sizeTensor) {}
    bool isConstant() const override { return mConstant; }
    int64_t getConstantValue() const override { return mConstant ? mValue : -1; }
    bool isSizeTensor() const override { return mSizeTensor; }
    int64_t value() const { return mValue; }

private:
    int64_t mValue;
    bool mConstant, mSizeTensor;
};

class Expr final : public nvinfer1::IDimensionExpr {
public:
    Expr(int64_t value, bool constant, bool sizeTensor = false) : mValue(value, constant, sizeTensor) { mImpl = &mValue; }
    int64_t value() const { return mValue.value(); }

private:
    ExprValue mValue;
};

// Makes expressions and owns them.
class Exprs final : public nvinfer1::apiv::VExprBuilder {
public:
    nvinfer1::IDimensionExpr const* make(int64_t value, bool constant, bool sizeTensor = false) {
        mAll.push_back(std::make_unique<Expr>(value, constant, sizeTensor));
        return mAll.back().get();
    }

    nvinfer1::IDimensionExpr const* constant(int64_t value) override { return make(value, true); }

    nvinfer1::IDimensionExpr const* operation(nvinfer1::DimensionOperation operation, nvinfer1::IDimensionExpr const& first,
                                              nvinfer1::IDimensionExpr const& second) override {
        int64_t const a = valueOf(first), b = valueOf(second);
        bool const divides = operation == nvinfer1::DimensionOperation::kFLOOR_DIV
                             || operation == nvinfer1::DimensionOperation::kCEIL_DIV;
        if (divides && b == 0) return nullptr;
        return make(calculate(operation, a, b), first.isConstant() && second.isConstant());
    }

    nvinfer1::IDimensionExpr const* declareSizeTensor(int32_t, nvinfer1::IDimensionExpr const&,
                                                      nvinfer1::IDimensionExpr const& upper) override {
        return make(valueOf(upper), false, true);
    }

    static int64_t valueOf(nvinfer1::IDimensionExpr const& expr) { return static_cast<Expr const&>(expr).value(); }

private:
    std::vector<std::unique_ptr<Expr>> mAll;

    static int64_t calculate(nvinfer1::DimensionOperation operation, int64_t a, int64_t b) {
        switch (operation) {
            case nvinfer1::DimensionOperation::kSUM: return a + b;
            case nvinfer1::DimensionOperation::kPROD: return a * b;
            case nvinfer1::DimensionOperation::kMAX: return a > b ? a : b;
            case nvinfer1::DimensionOperation::kMIN: return a < b ? a : b;
            case nvinfer1::DimensionOperation::kSUB: return a - b;
            case nvinfer1::DimensionOperation::kEQUAL: return a == b;
            case nvinfer1::DimensionOperation::kLESS: return a < b;
            case nvinfer1::DimensionOperation::kFLOOR_DIV: return a / b - (a % b != 0 && (a < 0) != (b < 0));
            case nvinfer1::DimensionOperation::kCEIL_DIV: return a / b + (a % b != 0 && (a < 0) == (b < 0));
        }
        return -1;
    }
};

class ExprBuilder final : public nvinfer1::IExprBuilder {
public:
    explicit ExprBuilder(Exprs& exprs) { mImpl = &exprs; }
};

}  // namespace driver
