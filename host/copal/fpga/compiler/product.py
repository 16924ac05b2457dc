# SPDX-License-Identifier: MIT
"""Makes the instructions of the array and of what feeds it: products, QUANT, BROADCAST.

Tiles and strides are those of docs/hardware.md: features run over m, batch rows over n; in a weight
gradient outputs over m, inputs over n, and rows over k.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from copal.fpga.compiler.draft import Draft, Scale, Span, Tensor, whole
from copal.fpga.compiler.scales import ROOM_OF_SUMS, ROOM_OF_WEIGHTS, Sample, ScaleBook
from copal.fpga.compiler.vector import VectorUnit
from copal.fpga.config import EngineConfig
from copal.fpga.isa import Op
from copal.fpga.parameters import ParameterLayout, Segment

SUM_BITS = 31
"""Bits of the magnitude of a sum in V or G."""


class ProductUnit:
    """Appends instructions to a list, and their exponents to a book.

    Args:
        drafts: Grows.
        parameters: Where the networks lie.
        book: Gets the exponents.
        config: Of the engine.
        stride: Batch tiles of a block.
        phase: Number of the phase.
        clipped: Whether the norm of the gradient is needed.
    """

    def __init__(
        self,
        drafts: list[Draft],
        parameters: ParameterLayout,
        book: ScaleBook,
        config: EngineConfig,
        stride: int,
        phase: int,
        *,
        clipped: bool,
    ) -> None:
        self._drafts, self._parameters, self._book = drafts, parameters, book
        self._p = config.array_size
        self._a_bits, self._b_bits = config.a_bits - 1, config.b_bits - 1
        self._stride, self._phase, self._clipped = stride, phase, clipped
        self._ones: Tensor | None = None

    def scale_of(self, buffer: str, spaces: frozenset[str]) -> str:
        """The exponent of a buffer's integers in A, B or both, where the narrower one decides."""
        sample = Sample("buffer", self._phase, buffer)
        bits = self._a_bits if "A" in spaces else self._b_bits
        return self._book.add(f"{self._phase}:{buffer}", bits, sample)

    def tensor(self, name: str, width: int, spaces: frozenset[str], scale: str) -> Tensor:
        """A fresh tensor in A, B or both."""
        return Tensor(name, width, spaces, self._tiles(width) * self._stride * self._p, scale)

    def mask(self, name: str, width: int) -> Tensor:
        """A fresh mask of a relu."""
        words = self._tiles(width) * self._stride * self._p
        return Tensor(f"mask of {name}", width, frozenset({"MASK"}), words)

    def _tiles(self, width: int) -> int:
        return -(-width // self._p)

    def quant(self, x: Span, out: Tensor) -> None:
        """Integers of columns of V, in A, B or both."""
        assert out.scale is not None
        draft = Draft(Op.QUANT, {"cols": x.width, "mt": self._tiles(x.width) - 1})
        draft.fields |= {"x_c": self._stride, **self._tile_strides()}
        draft.fields |= {f"to_{s.lower()}": 1 for s in out.spaces}
        draft.places = {"x_base": (x.tensor, x.start * self._stride, 1), "c_base": (out, 0, 1)}
        draft.rows = {"nt": "tiles", "n_tail": "tail"}
        draft.scales = {"exponent": Scale(0, ((out.scale, 1),))}
        draft.ranged = {"range": out.scale}
        draft.reads, draft.writes = (x,), (whole(out),)
        draft.note = f"integers of {out.name}"
        self._drafts.append(draft)

    def _tile_strides(self) -> dict[str, int]:
        return {"c_m": self._stride * self._p, "c_n": self._p}

    def dense(
        self,
        attrs: Mapping[str, Any],
        name: str,
        x: Tensor,
        out: Span | Tensor,
        mask: Tensor | None = None,
    ) -> str:
        """`out` = x W^T + b, with `mask` the relu of it; returns the exponent of `out`."""
        segment, weight, base = self._weight(attrs)
        fan_in, fan_out = int(attrs["fan_in"]), int(attrs["fan_out"])
        fields = {"mt": self._tiles(fan_out) - 1, "kn": fan_in - 1, "a_base": base}
        fields |= {"a_m": segment.tiles(self._p)[1], "a_k": 1, "a_col": 1}
        if attrs["bias"] >= 0:
            fields |= {"use_bias": 1, "bias_base": self._bias(attrs, segment, x)}
        if mask is not None:
            fields["relu"] = 1
        return self._rows_product(fields, name, (x, weight, out), mask, fan_in * fan_out)

    def dense_grad_input(
        self,
        attrs: Mapping[str, Any],
        name: str,
        x: Tensor,
        out: Span | Tensor,
        mask: Tensor | None = None,
    ) -> str:
        """`out` = x W, zero where `mask` is; returns the exponent of `out`."""
        segment, weight, base = self._weight(attrs)
        fan_in, fan_out = int(attrs["fan_in"]), int(attrs["fan_out"])
        fields = {"mt": self._tiles(fan_in) - 1, "kn": fan_out - 1, "a_base": base}
        fields |= {"a_m": 1, "a_k": segment.tiles(self._p)[1]}
        if mask is not None:
            fields["use_mask"] = 1
        return self._rows_product(fields, name, (x, weight, out), mask, fan_in * fan_out)

    def _rows_product(
        self,
        fields: dict[str, int],
        name: str,
        operands: tuple[Tensor, str, Span | Tensor],
        mask: Tensor | None,
        macs: int,
    ) -> str:
        """A product whose result has the rows of the batch; returns its exponent."""
        x, weight, out = operands
        assert x.scale is not None
        draft = Draft(Op.PRODUCT, fields, note=name, macs_per_row=macs)
        draft.fields |= {"b_n": 1, "b_k": self._stride}
        draft.places["b_base"] = (x, 0, self._p)
        draft.rows = {"nt": "tiles", "n_tail": "tail"}
        if isinstance(out, Tensor):
            assert out.scale is not None
            scale, written = out.scale, whole(out)
            draft.fields |= {f"to_{s.lower()}": 1 for s in out.spaces} | self._tile_strides()
            draft.fields["c_i"] = 1
            draft.places["c_base"] = (out, 0, 1)
        else:
            sample = Sample("buffer", self._phase, name)
            scale = self._book.add(
                f"{self._phase}:{name}:sums", SUM_BITS, sample, room=ROOM_OF_SUMS
            )
            written = out
            strides = {"c_m": self._stride * self._p, "c_n": 1, "c_i": self._stride}
            draft.fields |= {"to_v": 1, "m_tail": out.width % self._p, **strides}
            draft.places["c_base"] = (out.tensor, out.start * self._stride, 1)
        draft.reads, draft.writes = (whole(x),), (written,)
        if mask is not None:
            draft.places["mask_base"] = (mask, 0, 1)
            spans = {"reads": draft.reads, "writes": draft.writes}
            side = "writes" if fields.get("relu") else "reads"
            setattr(draft, side, (*spans[side], whole(mask)))
        draft.scales = {"shift": Scale(0, ((weight, 1), (x.scale, 1), (scale, -1)))}
        draft.ranged = {"range": scale}
        self._book.limit(scale, weight, x.scale)
        self._drafts.append(draft)
        return scale

    def _weight(self, attrs: Mapping[str, Any]) -> tuple[Segment, str, int]:
        """The segment of a weight, the exponent of its integers, and their first tile in A."""
        network = str(attrs["network"])
        segment = self._parameters.find(network, attrs["weight"], "weight")
        target = self._parameters.in_target(network)
        copy = segment.copy_target if target else segment.copy
        assert copy is not None
        return segment, self._weight_scale(network, segment), copy // self._p

    def _weight_scale(self, network: str, segment: Segment) -> str:
        return weight_scale(self._book, network, segment, self._a_bits)

    def _bias(self, attrs: Mapping[str, Any], weight: Segment, x: Tensor) -> int:
        network = str(attrs["network"])
        vector = self._parameters.find(network, attrs["bias"], "vector")
        assert x.scale is not None
        self._book.input_of(network, weight.offset, x.scale)
        self._book.layer(network, vector.offset, weight.offset)
        return vector.bias_target if self._parameters.in_target(network) else vector.bias

    def dense_grad_weight(
        self, attrs: Mapping[str, Any], x: Tensor, y: Tensor, bias: int | None
    ) -> None:
        """gradient[weight] = x^T y; with `bias`, an offset, also the sum of x over the rows."""
        network, p = str(attrs["network"]), self._p
        segment = self._parameters.find(network, attrs["weight"], "weight")
        fan_in, fan_out = int(attrs["fan_in"]), int(attrs["fan_out"])
        fields = {"nt": self._tiles(fan_in) - 1, "b_n": self._stride}
        fields |= {"c_base": segment.address, "c_m": segment.tiles(p)[1] * p, "c_n": p}
        name = gradient_scale(self._phase, segment)
        draft = self._product_over_rows(fields, segment, (x, y), name, f"gradient {segment.name}")
        draft.macs_per_row = fan_in * fan_out
        if bias is not None:
            self._sum(draft, network, bias, x)
            if self._clipped:
                self._sum_for_norm(network, bias, x)

    def _product_over_rows(
        self,
        fields: dict[str, int],
        segment: Segment,
        operands: tuple[Tensor, Tensor],
        name: str,
        note: str,
    ) -> Draft:
        """G gets the product x^T y of two operands; `name` is that of its exponent."""
        x, y = operands
        assert x.scale is not None
        assert y.scale is not None
        sample = Sample("gradient", self._phase, segment.network, segment.offset, segment.size)
        scale = self._book.add(name, SUM_BITS, sample, room=ROOM_OF_SUMS)
        draft = Draft(Op.PRODUCT, {**self._columns_of(x), **fields}, note=note)
        draft.fields |= {"b_k": 1, "b_col": 1, "to_g": 1, "c_i": 1}
        draft.places = {"a_base": (x, 0, self._p), "b_base": (y, 0, self._p)}
        draft.rows = {"kn": "rows"}
        draft.scales = {"shift": Scale(0, ((x.scale, 1), (y.scale, 1), (scale, -1)))}
        draft.ranged = {"range": scale}
        draft.reads = (whole(x), whole(y))
        self._book.limit(scale, x.scale, y.scale)
        self._drafts.append(draft)
        return draft

    def _columns_of(self, x: Tensor) -> dict[str, int]:
        """Fields that read x by features over m and by rows over k."""
        return {"mt": self._tiles(x.width) - 1, "a_m": self._stride, "a_k": 1, "a_col": 1}

    def sum_over_rows(self, network: str, offset: int, x: Tensor) -> None:
        """gradient[offset] = the sum of x over the rows: a product whose result goes nowhere."""
        draft = Draft(Op.PRODUCT, self._columns_of(x), note=f"gradient {network}[{offset}:]")
        draft.places = {"a_base": (x, 0, self._p)}
        draft.rows = {"kn": "rows"}
        draft.reads = (whole(x),)
        self._sum(draft, network, offset, x)
        self._drafts.append(draft)
        if self._clipped:
            self._sum_for_norm(network, offset, x)

    def _sum_for_norm(self, network: str, offset: int, x: Tensor) -> None:
        """The sum of x once more, as a product with a one: GB has too few bits for squares."""
        segment, ones = self._parameters.find(network, offset, "vector"), self._one()
        assert segment.norm is not None
        fields = {"c_base": segment.norm, "c_m": self._p}
        name = norm_scale(self._phase, segment)
        note = f"gradient {segment.name} for its norm"
        self._product_over_rows(fields, segment, (x, ones), name, note)

    def _one(self) -> Tensor:
        """A column of ones in B."""
        if self._ones is None:
            unit = VectorUnit(self._drafts, self._stride)
            column = unit.new("one", 1)
            unit.move(column, 1.0, note="one")
            scale = self._book.add("one", self._b_bits, room=1, bound=True)
            self._ones = self.tensor("one", 1, frozenset("B"), scale)
            self.quant(column, self._ones)
        return self._ones

    def _sum(self, draft: Draft, network: str, offset: int, x: Tensor) -> None:
        segment = self._parameters.find(network, offset, "vector")
        assert x.scale is not None
        self._book.vector_gradient(self._phase, segment.network, segment.offset, x.scale)
        draft.fields |= {"bgrad": 1, "bias_base": segment.bias}

    def broadcast(self, network: str, offset: int, out: Span) -> None:
        """One parameter in every row of a column."""
        segment = self._parameters.find(network, offset)
        word, lane = divmod(offset - segment.offset, self._p)
        fields = {"p_base": segment.address + word, "lane": lane}
        fields["target"] = int(self._parameters.in_target(network))
        draft = Draft(Op.BROADCAST, fields, note=f"{network}[{offset}]")
        draft.places = {"d_base": (out.tensor, out.start * self._stride, 1)}
        draft.rows = {"nt": "tiles"}
        draft.writes = (out,)
        self._drafts.append(draft)


def gradient_scale(phase: int, segment: Segment) -> str:
    """Name of the exponent of a weight gradient."""
    return f"{phase}:gradient {segment.name}"


def norm_scale(phase: int, segment: Segment) -> str:
    """Name of the exponent of a bias gradient in G."""
    return f"{phase}:norm of {segment.name}"


def weight_scale(book: ScaleBook, network: str, segment: Segment, bits: int) -> str:
    """Adds the exponent of a weight's integers in A; returns its name."""
    sample = Sample("parameters", 0, network, segment.offset, segment.size)
    name = f"{network}[{segment.offset}:{segment.offset + segment.size}]"
    return book.add(name, bits, sample, room=ROOM_OF_WEIGHTS, bound=True)
