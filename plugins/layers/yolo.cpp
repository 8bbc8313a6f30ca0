// darknet's yolo: the head of YOLOv3 and YOLOv4. The rules are those of pytrtplugins/layers/yolo.py.
#include "head.h"

namespace pytrtplugins::layers {

class Yolo : public Head {
public:
    std::vector<float> anchors;
    std::vector<int64_t> mask;
    int64_t classes = 20;
    float scaleXY = 1.0f;
    bool newCoords = false;

    void fields(FieldVisitor& visit) override {
        visit("anchors", anchors);
        visit("mask", mask);
        visit("classes", classes);
        visit("scale_x_y", scaleXY);
        visit("new_coords", newCoords);
    }

    void validate() const override {
        if (classes < 0) throw FieldError("Yolo.classes: expected at least 0, found " + std::to_string(classes));
        int64_t const count = static_cast<int64_t>(anchors.size() / 2);
        bool valid = !mask.empty();
        for (int64_t index : mask) valid &= index >= 0 && index < count;
        if (!valid) throw FieldError("Yolo.mask: expected indices of the " + std::to_string(count) + " anchors");
    }

    char const* description() const override {
        return "Turn the raw values of a YOLOv3 or YOLOv4 head into positions, sizes, objectness and probabilities.";
    }

    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        checkRank(inputs[0], 4, "Yolo");
        checkEqual(inputs[0][1], static_cast<int64_t>(mask.size()) * (5 + classes),
                   "Yolo: channels (len(mask) * (5 + classes))");
        return {inputs[0]};
    }

private:
    HeadTable table() const override {
        int const end = static_cast<int>(5 + classes);
        int32_t const activation = newCoords ? HeadTable::kAS_IS : HeadTable::kLOGISTIC;
        HeadTable table(end, scaleXY, static_cast<float>(-0.5 * (static_cast<double>(scaleXY) - 1)));
        table.add(scaleXY == 1.0f ? activation : activation | HeadTable::kSTRETCHED, 0, 2);
        table.add(HeadTable::kAS_IS, 2, 4);
        table.add(activation, 4, end);
        return table;
    }
};

PYTRTPLUGINS_REGISTER(Yolo, PYTRTPLUGINS_NAMESPACE, "1")

}  // namespace pytrtplugins::layers
