"""Operators and parts of schemas that no form uses, each with the reason."""

from __future__ import annotations

from onnx.defs import OpSchema

from .contrib import CONTRIB, ContribSchema, qualified_name
from .draft import element_type

__all__ = ["OPERATORS", "RANDOM", "excluded"]

_SEQUENCES = "sequences and optionals"
_TEXT = "text"
_SEQUENCE_OPERATORS = (
    "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap "
    "SplitToSequence Optional OptionalGetElement OptionalHasElement"
)
_RANDOM = "random numbers, which each library draws differently"

_CONTRIB = {
    "language models that onnxruntime-genai writes, and that run there alone": (
        "BeamSearch BifurcationDetector CausalConvWithState ConvStateReplay DecoderAttention DecoderMaskedMultiHeadAttention "
        "DecoderMaskedSelfAttention DynamicSparseAttention EngramGate GatedAdd GatedDeltaNet GatedDeltaNetStateReplay GatedRMSNorm "
        "GatherPacked GreedySearch GroupQueryAttention HyperConnectionLowRankMix HyperConnectionPostMix HyperConnectionPreMix "
        "LinearAttention LinearAttentionGate MRotaryEmbedding Mamba2Verify MoE MoEGroupRouter MoEPacked NGramHashMapping "
        "NGramRepeatBlock PackedSparseAttentionIndexer PackedSparseAttentionIndexerMerge PagedAttention QMoE RMSNormRotary "
        "RouterGateUpProj Sampling ScaledSiLU SparseAttention SparseAttentionIndexer SparsePagedAttention SpeculativePrefixCommit "
        "SwiGLU VarlenCausalConvWithState VarlenNGramHashMapping WhisperBeamSearch BranchwiseRMSNorm MatMulNBitsMlp MatMulNBitsQLoRA "
        "MatMulNBitsQkv"
    ),
    "onnxruntime's optimizer writes it for GPUs alone, and its CPU provider has no kernel": (
        "BiasAdd BiasSoftmax BiasSplitGelu ComplexMul ComplexMulConj DequantizeBFP DequantizeWithOrder GatedRelativePositionBias "
        "GemmFastGelu GemmFloat8 GemmaRotaryEmbedding GroupNorm Irfft LongformerAttention MatMulBlockQuantizedFp4Weight "
        "MatMulBlockQuantizedFp8Weight MatMulPacked NhwcConv PackedAttention PackedMultiHeadAttention QOrderedAttention QOrderedGelu "
        "QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeBFP QuantizeWithOrder RelativePositionBias "
        "RemovePadding RestorePadding Rfft SkipGroupNorm"
    ),
    "training": "BiasDropout BitmaskBiasDropout BitmaskDropout IsAllFinite",
    "a node for one provider, with its program as an attribute": "EPContext Snpe",
    "text": "Tokenizer WordConvEmbedding",
    "neither onnxruntime's optimizer nor its quantizer writes it": (
        "AttnLSTM CDist ConvTransposeWithDynamicPads CropAndResize DynamicTimeWarping ExpandDims GatherND GridSample Inverse "
        "MatMulFpQ4 MatMulInteger16 MaxpoolWithMask MulInteger MurmurHash3 Pad Range ReduceSumInteger SampleOp SparseToDenseMatMul "
        "TorchEmbedding Trilu UnfoldTensor Unique"
    ),
}
"""Why → operators of onnxruntime."""

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that draw random numbers."""

OPERATORS: dict[str, str] = {
    **dict.fromkeys(
        _SEQUENCE_OPERATORS.split(),
        _SEQUENCES,
    ),
    **dict.fromkeys(["RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"], _TEXT),
    **dict.fromkeys(sorted(RANDOM), _RANDOM),
    "ImageDecoder": "files of images as input",
    **{f"{CONTRIB}.{operator}": reason for reason, text in _CONTRIB.items() for operator in text.split()},
}
"""Operator → why no form of it is drawn."""

_ATTRIBUTES = {
    "training_mode": "training",
    "seed": _RANDOM,
    "sparse_value": "tested by tests/passes",
    "value_string": _TEXT,
    "value_strings": _TEXT,
    "activation_alpha": "of activations that are not drawn",
    "activation_beta": "of activations that are not drawn",
}


_BUFFERS = "buffers that runs of a language model share"
_CONTRIB_PARTS = {
    **dict.fromkeys(("past_present_share_buffer", "past_sequence_length", "cache_indirection"), _BUFFERS),
    "do_rotary": "no provider rotates inside of Attention",
    "rotary_embedding_dim": "no provider rotates inside of Attention",
    "g_idx": "deprecated",
    "is_packed_batching": "onnxruntime's GPU alone",
}
"""Attributes and inputs of onnxruntime's operators."""
_CONTRIB_TYPES = {"FusedGemm": "no provider runs it on whole numbers"}


def excluded(schema: OpSchema | ContribSchema, item: tuple[str, str, str]) -> str:
    """Why no form uses a part of a schema; empty where forms are to use it."""
    if qualified_name(schema) in OPERATORS:
        return OPERATORS[qualified_name(schema)]
    kind, name, what = item
    if schema.domain == CONTRIB and name in _CONTRIB_PARTS:
        return _CONTRIB_PARTS[name]
    if schema.domain == CONTRIB and schema.name in _CONTRIB_TYPES and kind == "type" and "int" in what:
        return _CONTRIB_TYPES[schema.name]
    if kind == "type" and element_type(what) is None:
        return _SEQUENCES if what.startswith(("seq(", "optional(")) else "text and complex numbers"
    if kind == "attribute" and what == "set" and name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    return ""
