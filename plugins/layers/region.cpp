// darknet's region: the head of YOLOv2. The rules are those of pytrtplugins/layers/region.py.
#include "head.h"

namespace pytrtplugins::layers {

class Region : public Head {
public:
    std::vector<float> anchors;
    int64_t classes = 20, coords = 4, num = 1;
    bool softmax = false, background = false;
    std::vector<int64_t> tree;

    void fields(FieldVisitor& visit) override {
        visit("anchors", anchors);
        visit("classes", classes);
        visit("coords", coords);
        visit("num", num);
        visit("softmax", softmax);
        visit("background", background);
        visit("tree", tree);
    }

    void validate() const override {
        atLeast("classes", classes, 0);
        atLeast("coords", coords, 2);
        atLeast("num", num, 1);
        if (!anchors.empty() && anchors.size() != 2 * static_cast<size_t>(num)) {
            throw FieldError("Region.anchors: expected " + std::to_string(2 * num) + " values for num="
                             + std::to_string(num) + ", found " + std::to_string(anchors.size()));
        }
        if (!tree.empty() && tree.size() != static_cast<size_t>(classes)) {
            throw FieldError("Region.tree: expected " + std::to_string(classes) + " parents, found "
                             + std::to_string(tree.size()));
        }
        for (size_t i = 0; i < tree.size(); ++i) {
            if (tree[i] < -1 || tree[i] >= static_cast<int64_t>(i)) {
                throw FieldError("Region.tree: each parent must be -1 or a class before its child");
            }
        }
    }

    char const* description() const override {
        return "Turn the raw values of YOLOv2's last convolution into positions, sizes, objectness and probabilities.";
    }

    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override {
        checkRank(inputs[0], 4, "Region");
        checkEqual(inputs[0][1], num * entries(), "Region: channels (num * (coords + 1 + classes))");
        return {inputs[0]};
    }

private:
    int64_t entries() const { return coords + 1 + classes; }

    HeadTable table() const override {
        int const c = static_cast<int>(coords), end = static_cast<int>(entries());
        HeadTable table(end);
        table.add(HeadTable::kLOGISTIC, 0, 2);
        table.add(HeadTable::kAS_IS, 2, c);
        if (softmax && background && tree.empty()) {
            table.add(HeadTable::kSOFTMAX, c, end);
            return table;
        }
        table.add(background ? HeadTable::kAS_IS : HeadTable::kLOGISTIC, c, c + 1);
        if (tree.empty()) table.add(softmax ? HeadTable::kSOFTMAX : HeadTable::kLOGISTIC, c + 1, end);
        for (size_t begin = 0, stop = 0; begin < tree.size(); begin = stop) {  // siblings stand side by side
            while (stop < tree.size() && tree[stop] == tree[begin]) ++stop;
            table.add(HeadTable::kSOFTMAX, c + 1 + static_cast<int>(begin), c + 1 + static_cast<int>(stop));
        }
        return table;
    }

    static void atLeast(std::string const& name, int64_t value, int64_t least) {
        if (value >= least) return;
        throw FieldError("Region." + name + ": expected at least " + std::to_string(least) + ", found "
                         + std::to_string(value));
    }
};

PYTRTPLUGINS_REGISTER(Region, PYTRTPLUGINS_NAMESPACE, "1")

}  // namespace pytrtplugins::layers
