import pytest
import torch

from st_extras.encoders.heads import apply_head, projection_head
from tests.helpers import draw


def test_apply_head_to_every_view_with_gradients():
    head = projection_head(4)
    views = [draw(3, 4).float().requires_grad_(), draw(2, 4, seed=1).float()]
    got = apply_head(head, views)
    assert [x.shape for x in got] == [(3, 4), (2, 4)]
    for x, view in zip(got, views, strict=True):
        torch.testing.assert_close(x, torch.tanh(view @ head[0].weight.T + head[0].bias))
    sum(x.sum() for x in got).backward()
    assert views[0].grad.any()
    assert all(parameter.grad.any() for parameter in head.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_heads_dtype_is_the_results(dtype):
    head = projection_head(4).to(dtype)
    assert {x.dtype for x in apply_head(head, [draw(3, 4), draw(3, 4).bfloat16()])} == {dtype}


def test_another_dimension_is_refused():
    with pytest.raises(ValueError, match=r"embeddings of 4 dimensions, got 3: use projection=False.*MatryoshkaLoss"):
        apply_head(projection_head(4), [draw(2, 3)])
