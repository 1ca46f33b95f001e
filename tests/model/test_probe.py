"""What would mix one request's tokens with another's is refused before it is served."""

from __future__ import annotations

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, PreTrainedModel

from engine.core.errors import ModelNotServable
from engine.model import probe as probing
from engine.model.attention import StepContext
from engine.model.probe import probe
from engine.model.runner import TorchRunner
from tests.model.test_parity import FAMILIES, make


@pytest.mark.parametrize("family", list(FAMILIES))
def test_served_families_pass_and_say_what_a_position_takes(family: str) -> None:
    heads = 6 if family == "gpt2" else 2
    assert probe(make(family)) == 3 * 2 * heads * 8 * 4


def test_a_model_that_ignores_the_attention_function_is_refused() -> None:
    torch.manual_seed(0)
    model = BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4))
    with pytest.raises(ModelNotServable, match="Bloom"):
        probe(model.eval())


def test_requests_that_see_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaky(TorchRunner):
        """Tells every row that it may read from the start of the batch's places."""

        def _inputs(  # type: ignore[override]
            self, plan: object
        ) -> tuple[StepContext, torch.Tensor, torch.Tensor, torch.Tensor]:
            context, ids, positions, last = super()._inputs(plan)  # type: ignore[arg-type]
            ids = ids.clone()
            if len(context.rows) > 1:
                ids[-1] = ids[0]  # the second request's last token is the first one's
            return context, ids, positions, last

    monkeypatch.setattr(probing, "TorchRunner", Leaky)
    with pytest.raises(ModelNotServable, match="shares its batch"):
        probe(make("llama"))


def test_an_unknown_attention_keyword_is_refused_by_name() -> None:
    model: PreTrainedModel = make("llama")
    layer = model.model.layers[0].self_attn
    forward = layer.forward
    layer.forward = lambda *args, **kw: forward(*args, s_aux=torch.zeros(6), **kw)
    with pytest.raises(ModelNotServable, match="s_aux"):
        probe(model)
