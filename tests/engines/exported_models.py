"""Small models, written as other people's exporters write them: PyTorch's two, TensorFlow's, Paddle's, and older tools."""

import numpy as np

from tests.engines.model_parts import F, info, parsed, values


def if_that_captures():
    """PyTorch's TorchScript exporter: branches read the input, a tensor in the middle, and a weight."""
    text = """(float[batch,4] x) => (float[batch,4] y) {
        hidden = Relu (x)  sum = ReduceSum <keepdims = 0> (x)  condition = Greater (sum, zero)
        y = If (condition) <then_branch = a () => (float[] then_out) { then_out = MatMul (hidden, weight) },
                            else_branch = b () => (float[] else_out) { else_out = Sub (hidden, x) }> }"""
    made = parsed(text, weight=values(4, 4), zero=np.float32(0))
    return made, [{"x": np.abs(values(2, 4))}, {"x": -np.abs(values(3, 4))}]


def loop_that_captures():
    """A loop of TorchScript: its body reads a tensor from around it that no node of the main graph reads."""
    text = """(float[n,3] x, float[n,3] other) => (float[n,3] y) {
        shift = Sigmoid (other)
        y = Loop (trips, true, x) <body = b (int64 i, bool goes_on, float[n,3] state) => (bool more, float[n,3] after) {
            scaled = Mul (state, scale)  after = Add (scaled, shift)  more = Identity (goes_on) }> }"""
    made = parsed(text, scale=values(3), trips=np.int64(3), true=np.bool_(True))
    return made, [{"x": values(2, 3), "other": values(2, 3)}]


def loop_with_a_branch_inside():
    """Two levels: a branch in a loop reads an input that nothing else reads, and the loop's own counter."""
    text = """(float[3] x, float[3] deep, int64 trips) => (float[3] y, float[N,3] each) {
        y, each = Loop (trips, , x) <body = b (int64 i, bool goes_on, float[3] state)
                                            => (bool more, float[3] after, float[3] scanned) {
            early = Less (i, two)
            after = If (early) <then_branch = c () => (float[] then_out) { then_out = Add (state, deep) }, else_branch =
                d () => (float[] else_out) { count = Cast <to = 1> (i)  else_out = Sub (state, count) }>
            more = Identity (goes_on)  scanned = Neg (after) }> }"""
    made = parsed(text, two=np.int64(2))
    made.graph.output[1].type.tensor_type.shape.dim[0].Clear()  # a dim without a name
    return made, [{"x": values(3), "deep": values(3), "trips": np.array(4)}]


def scan_that_captures():
    """`torch.scan` and tf2onnx's recurrent cells: the body reads weights from around it."""
    text = """(float[time,2,4] x) => (float[2,3] last, float[time,2,3] all) {
        last, all = Scan <num_scan_inputs = 1, body = b (float[2,3] state, float[2,4] row)
                                                     => (float[2,3] state_out, float[2,3] row_out) {
            projected = MatMul (row, kernel)  sum = Add (projected, state)
            state_out = Tanh (sum)  row_out = Identity (state_out) }> (initial, x) }"""
    made = parsed(text, initial=np.zeros((2, 3), np.float32), kernel=values(4, 3))
    return made, [{"x": values(5, 2, 4)}]


IMPORTS = 'opset_import: ["": 18, "pkg.torch": 1, "pkg.common": 1]'


def functions_of_functions():
    """PyTorch's older torch.export-based exporter: one function for each module, which calls functions of its library."""
    text = f"""(float[batch,4] x) => (float[batch,4] y) {{
        h = pkg.torch.Block (x, w1)  g = pkg.torch.Block (h, w2)  y = pkg.common.aten_softmax <dim = 0> (g) }}
        <domain: "pkg.torch", {IMPORTS}> Block (x, weight) => (y) {{
            z = MatMul (x, weight)  a = pkg.common.aten_leaky_relu <slope = 0.25> (z)  y = pkg.common.aten_softmax (a) }}
        <domain: "pkg.common", {IMPORTS}> aten_leaky_relu <slope> (x) => (y) {{
            y = LeakyRelu <alpha: float = @slope> (x) }}
        <domain: "pkg.common", {IMPORTS}> aten_softmax <dim: int = -1> (x) => (y) {{
            y = Softmax <axis: int = @dim> (x) }}"""
    made = parsed(text, 18, domains=["pkg.torch", "pkg.common"], w1=values(4, 4), w2=values(4, 4))
    return made, [{"x": values(2, 4)}, {"x": values(3, 4)}]


def functions_of_one_name():
    """IR 10: two functions of one name, told apart by their overload."""
    text = f"""(float[2,3] x) => (float[2,3] y) {{ h = pkg.torch.Act (x)  y = pkg.torch.Act (h) }}
        <domain: "pkg.torch", {IMPORTS}> Act (x) => (y) {{ y = Relu (x) }}
        <domain: "pkg.torch", {IMPORTS}> Act (x) => (y) {{ y = Neg (x) }}"""
    made = parsed(text, 18, 10, ["pkg.torch"])
    made.graph.node[1].overload = made.functions[1].overload = "1"
    return made, [{"x": values(2, 3)}]


def function_in_a_branch():
    """A function that only a branch calls, and that holds a branch itself, which reads the function's input."""
    text = f"""(float[n] x, bool flag) => (float[n] y) {{
        h = Mul (x, x0)
        y = If (flag) <then_branch = a () => (float[] l) {{ l = pkg.torch.AbsSum (h) }},
                       else_branch = b () => (float[] r) {{ r = Identity (h) }}> }}
        <domain: "pkg.torch", {IMPORTS}> AbsSum (x) => (y) {{
            s = ReduceSum <keepdims = 0> (x)  zero = Constant <value_float = 0.0> ()  c = Less (s, zero)
            y = If (c) <then_branch = c () => (float[] n) {{ n = Neg (x) }},
                        else_branch = d () => (float[] p) {{ p = Identity (x) }}> }}"""
    made = parsed(text, 18, domains=["pkg.torch"], x0=np.float32(2))
    return made, [{"x": -np.abs(values(3)), "flag": np.array(True)}, {"x": values(4), "flag": np.array(False)}]


def constants_as_outputs():
    """An initializer, a Constant and an input are outputs of the model."""
    text = """(float[n,2] x) => (float[n,2] y, float[3,2] anchors, int64[2] stride, float[n,2] x) {
        y = Add (x, anchors)  stride = Constant <value = int64[2] {8, 16}> () }"""
    return parsed(text, anchors=values(3, 2)), [{"x": values(3, 2)}, {"x": values(1, 2)}]


def nothing_but_an_input():
    """The output is the input: a module in evaluation mode whose only layer was Dropout."""
    return parsed("(float[n] x) => (float[n] y) { y = Identity (x) }"), [{"x": values(3)}]


def weights_as_inputs():
    """IR 3: every initializer is an input of the graph too (PyTorch 1.0, keep_initializers_as_inputs)."""
    text = """(float[1,2,5,5] x, float[3,2,3,3] w, float[3] b) => (float[1,3,5,5] y) {
        y = Conv <pads = [1, 1, 1, 1]> (x, w, b) }"""
    return parsed(text, 9, 3, w=values(3, 2, 3, 3), b=values(3)), [{"x": values(1, 2, 5, 5)}]


def minus_one_dims():
    """Paddle's: free dims are written as -1, in the outputs and in between too."""
    text = "(float[N,2,H,W] x) => (float[N,3,H,W] y) { h = Conv <pads = [1, 1, 1, 1]> (x, w)  y = Relu (h) }"
    made = parsed(text, 11, 7, w=values(3, 2, 3, 3))
    made.graph.value_info.append(info("h", F, ["N", 3, "H", "W"]))
    for each in (*made.graph.input, *made.graph.value_info, *made.graph.output):
        for dim in each.type.tensor_type.shape.dim:
            dim.dim_value = dim.dim_value or -1
    return made, [{"x": values(2, 2, 4, 5)}, {"x": values(1, 2, 7, 3)}]


def dims_called_question_mark():
    """Free dims of one name that says nothing: they need not be equal."""
    text = "(float[N,4] a, float[N,4] b) => (float[N,N] y) { t = Transpose <perm = [1, 0]> (b)  y = MatMul (a, t) }"
    made = parsed(text)
    for each in (*made.graph.input, *made.graph.output):
        for dim in each.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = "?"
    return made, [{"a": values(2, 4), "b": values(3, 4)}]


def unused_inputs():
    """Paddle detection's: ``im_shape`` is an input that nothing reads."""
    text = "(float[n,2] im_shape, float[n,4] image, float scale_factor) => (float[n,4] y) { y = Mul (image, scale_factor) }"
    feeds = {"im_shape": values(2, 2), "image": values(2, 4), "scale_factor": np.array(0.5, np.float32)}
    return parsed(text, 11), [feeds]


def scalars():
    """tf2onnx's: inputs and outputs without axes."""
    text = """(float[unk__1,3] x, float rate) => (float y, float z) {
        scaled = Mul (x, rate)  y = ReduceMean <keepdims = 0> (scaled)  z = Add (rate, one) }"""
    rate = np.array(0.5, np.float32)
    rate.flags.writeable = False
    return parsed(text, 13, one=np.float32(1)), [{"x": values(2, 3), "rate": rate}]


def numbers_of(dtype):
    """A model whose input and outputs are of one type: arithmetic in it where ONNX has that, else a Cast."""

    def make():
        kind = {"float64": "double"}.get(dtype, dtype)
        text = f"({kind}[n,3] x) => ({kind}[n,3] y, float[n,3] z) {{ y = Add (x, one)  z = Cast <to = 1> (y) }}"
        return parsed(text, one=np.ones(3, dtype)), [{"x": np.arange(6).astype(dtype).reshape(2, 3)}]

    return make


def old_resize():
    """Opset 9: Upsample, whose scales are an input."""
    text = """(float[n,2,3,3] x) => (float[n,2,4,6] y) {
        u = Upsample <mode = "nearest"> (x, scales)  y = Slice <axes = [2], starts = [1], ends = [5]> (u) }"""
    return parsed(text, 9, 4, scales=np.array([1, 1, 2, 2], np.float32)), [{"x": values(2, 2, 3, 3)}]


def old_axes():
    """Opset 11, as most networks of 2020: axes are attributes, Softmax takes all axes from its own on, Clip has inputs."""
    text = """(float[n,3,4] x) => (float[n,4] y, float[n,2,4] z) {
        u = Unsqueeze <axes = [1]> (x)  r = ReduceSum <axes = [1], keepdims = 0> (u)  c = Clip (r, low, high)
        p = Softmax <axis = 1> (c)  q = Pad (p, pads)  first, second = Split <axis = 1, split = [1, 2]> (q)
        y = Squeeze <axes = [1]> (first)  z = Dropout <ratio = 0.3> (second) }"""
    made = parsed(text, 11, 6, low=np.float32(0), high=np.float32(1), pads=np.zeros(6, np.int64))
    return made, [{"x": values(2, 3, 4)}]


def old_normalization():
    """Opset 7 and 8: BatchNormalization says ``spatial``, Dropout has a ratio, Reshape and Gemm broadcast."""
    text = """(float[2,2,3,3] x) => (float[2,5] y) {
        h = Conv <kernel_shape = [1, 1]> (x, w)  n = BatchNormalization <epsilon = 0.001, momentum = 0.9> (h, s, b, m, v)
        d = Dropout <ratio = 0.5> (n)  f = Reshape (d, flat)  y = Gemm (f, g, c) }"""
    statistics = {"s": values(4), "b": values(4), "m": values(4), "v": np.abs(values(4)) + 1}
    constants = {"w": values(4, 2, 1, 1), "flat": np.array([2, 36]), "g": values(36, 5), "c": values(5)}
    return parsed(text, 8, 4, **statistics, **constants), [{"x": values(2, 2, 3, 3)}]


def old_branches():
    """Opset 11 with operators of that opset inside the branches."""
    text = """(float[n] x, bool flag) => (float[n] y) {
        h = Unsqueeze <axes = [0]> (x)
        y = If (flag) <then_branch = a () => (float[] t) { t = Squeeze <axes = [0]> (h) },
                       else_branch = b () => (float[] e) { e = ReduceSum <axes = [0], keepdims = 0> (h) }> }"""
    return parsed(text, 11, 6), [{"x": values(3), "flag": np.array(flag)} for flag in (True, False)]


MODELS = {
    make.__name__: make
    for make in (
        if_that_captures, loop_that_captures, loop_with_a_branch_inside, scan_that_captures, functions_of_functions,
        functions_of_one_name, function_in_a_branch, constants_as_outputs, nothing_but_an_input, weights_as_inputs,
        minus_one_dims, dims_called_question_mark, unused_inputs, scalars, old_resize, old_axes, old_normalization, old_branches,
    )
}  # fmt: skip
DTYPES = ("float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MODELS.update({f"numbers_of_{dtype}": numbers_of(dtype) for dtype in DTYPES})
