# SPDX-License-Identifier: MIT
"""Makes the instructions behind a row program: clipping, Adam, averaging, and copies afresh."""

from __future__ import annotations

from copal.errors import ProgramError
from copal.fpga.compiler.draft import Draft, Scale, Tensor, whole
from copal.fpga.compiler.product import gradient_scale, norm_scale, weight_scale
from copal.fpga.compiler.scales import ScaleBook
from copal.fpga.compiler.vector import Operand, VectorUnit
from copal.fpga.config import EngineConfig
from copal.fpga.isa import SET_SIZE, Op, Vop
from copal.fpga.parameters import ParameterLayout, Segment
from copal.program import Update

SCALE_REGISTER = 8
"""Register of a set that the gradient is multiplied with."""
NORM_SHIFT = 15
"""Bits of a gradient's integers that NORM drops."""


class UpdateCode:
    """Makes the code of one Update behind its row programs, which are lowered already.

    Args:
        update: What is run.
        parameters: Where the networks lie.
        book: Exponents of the row programs.
        config: Of the engine.
        batch_size: Rows that a gradient is summed over.
    """

    def __init__(
        self,
        update: Update,
        parameters: ParameterLayout,
        book: ScaleBook,
        config: EngineConfig,
        batch_size: int,
    ) -> None:
        self._update, self._parameters, self._book = update, parameters, book
        self._bits, self._p = config.a_bits - 1, config.array_size
        self._batch_size = batch_size

    def refresh(self) -> list[Draft]:
        """Writes the integer copies of all parameters; no parameter changes."""
        return [
            self._draft(s, average=False, copy_target=True)
            for s in self._parameters.segments
            if s.kind != "rest"
        ]

    def step(self, phase: int, *, average: bool) -> list[Draft]:
        """The optimiser step of a phase, with averaging of the network's target if asked for."""
        drafts: list[Draft] = []
        name = str(self._update.phases[phase].program.gradient)
        segments = self._parameters.of(name)
        scalars = Tensor("K", 1, frozenset({"K"}), 1)
        found = [(s, scale) for s in segments if (scale := self._gradient(phase, s)) is not None]
        if self._update.phases[phase].max_grad_norm is not None:
            self._clip(drafts, phase, found, scalars)
        with_gradient = dict(found)
        for s in segments:
            scale = with_gradient.get(s)
            if scale is not None or average:
                draft = self._draft(s, set_=phase, gradient=scale, average=average)
                draft.reads = (whole(scalars),)
                drafts.append(draft)
        return drafts

    def average(self, source: str, set_: int) -> list[Draft]:
        """Averages the target of `source`, nothing else."""
        return [self._draft(s, set_=set_, average=True) for s in self._parameters.of(source)]

    def check(self) -> None:
        """Refuses what the optimiser on the engine cannot do.

        Raises:
            ProgramError: A phase leaves a part of its network without a gradient while another
                phase trains it, so that its moments would have to decay.
        """
        phases = self._update.phases
        for i, phase in enumerate(phases):
            name = str(phase.program.gradient)
            others = [j for j, p in enumerate(phases) if p.program.gradient == name and j != i]
            for s in self._parameters.of(name):
                moved = any(self._gradient(j, s) is not None for j in others)
                if moved and self._gradient(i, s) is None:
                    got = f"none for {s.name}, which another phase trains"
                    raise ProgramError(
                        f"phases[{i}]", "a gradient of the whole network", got,
                        "let one phase train the network, or use the `cpu` backend",
                    )  # fmt: skip

    def _gradient(self, phase: int, s: Segment) -> str | None:
        """The exponent of a segment's gradient in a phase, None if it has none."""
        if s.kind == "vector":
            return self._book.vector_scale(phase, s.network, s.offset)
        name = gradient_scale(phase, s)
        return name if self._book.knows(name) else None

    def _clip(
        self, drafts: list[Draft], phase: int, found: list[tuple[Segment, str]], scalars: Tensor
    ) -> None:
        """Scales the gradient by min(1 / B, maximum / norm of the summed gradient)."""
        unit = VectorUnit(drafts, 1)
        squares = unit.new("squares", len(found))
        for i, (s, scale) in enumerate(found):
            column = squares.part(i, i + 1)
            address, words = s.address, s.words(self._p)
            if s.kind == "vector":
                assert s.norm is not None
                address, words = s.norm, s.tiles(self._p)[0] * self._p
                scale = norm_scale(phase, s)
            shift = s.size.bit_length() + 1
            fields = {"count": words - 1, "p_base": address, "first": 1, "last": 1}
            draft = Draft(Op.NORM, {**fields, "shift": shift}, note=f"norm {s.name}")
            draft.places["d_base"] = (column.tensor, column.start, 1)
            draft.writes = (column,)
            drafts.append(draft)
            exponent = Scale(-2 * NORM_SHIFT - shift, ((scale, 2),))
            unit.emit(Vop.ITOF, column, Operand(column), scale=exponent, note="norm")
        total, maximum = unit.new("norm", 1), self._update.phases[phase].max_grad_norm
        assert maximum is not None
        unit.fold(Vop.ADD, total, squares)
        norm, factor, limit = (unit.new(n, 1) for n in ("norm", "factor", "limit"))
        unit.emit(Vop.SQRT, norm, Operand(total), note="norm")
        unit.emit(Vop.DIV, factor, maximum, Operand(norm), note="clip")
        unit.emit(Vop.MIN, limit, Operand(factor), 1 / self._batch_size, note="clip")
        index = phase * SET_SIZE + SCALE_REGISTER
        draft = Draft(Op.SCALAR, {"index": index}, note="clip")
        draft.places = {"x_base": (limit.tensor, 0, 1)}
        draft.reads, draft.writes = (limit,), (whole(scalars),)
        drafts.append(draft)

    def _draft(
        self,
        s: Segment,
        *,
        average: bool,
        set_: int = 0,
        gradient: str | None = None,
        copy_target: bool = False,
    ) -> Draft:
        """UPDATE of one segment."""
        fields = {"count": s.words(self._p) - 1, "p_base": s.address, "set": set_}
        fields |= {"adam": int(gradient is not None), "average": int(average)}
        draft = Draft(Op.UPDATE, fields, note=f"update {s.name}")
        if gradient is not None:
            draft.scales["e_g"] = Scale(0, ((gradient, 1),))
        copies = [("w", s.network, s.copy, "aw_base")]
        if s.target is not None and (average or copy_target):
            copies.append(("t", s.target, s.copy_target, "at_base"))
        for letter, network, address, base in copies:
            if s.kind == "vector":
                self._bias_copy(draft, s, letter, network)
            elif s.kind == "weight" and address is not None:
                scale = weight_scale(self._book, network, s, self._bits)
                draft.fields |= {f"copy_{letter}": 1, base: address}
                draft.scales[f"e_{letter}"] = Scale(0, ((scale, 1),))
                draft.ranged[f"range_{letter}"] = scale
        if s.kind == "vector":
            draft.fields |= {"bias": 1, "b_base": s.bias, "bt_base": s.bias_target}
        return draft

    def _bias_copy(self, draft: Draft, s: Segment, letter: str, network: str) -> None:
        terms = self._book.bias_terms(network, s.offset)
        if terms is not None:
            weight = self._parameters.find(network, terms[0], "weight")
            scale = weight_scale(self._book, network, weight, self._bits)
            draft.fields[f"copy_{letter}"] = 1
            draft.scales[f"e_{letter}"] = Scale(0, ((scale, 1), (terms[1], 1)))
