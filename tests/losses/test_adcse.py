from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from datasets import Dataset, DatasetDict
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor

from st_extras.losses import SimCSELoss
from st_extras.losses.adcse import AdCSELoss
from st_extras.training.loss_state import LossStateCallback
from tests.helpers import (
    Wrapped,
    arguments,
    assert_resume_is_seamless,
    columns,
    cosine,
    count_rows,
    differing,
    draw,
    fit,
    generator,
    run_in_two_processes,
    snapshot,
    train,
)
from tests.losses.equations import adversarial_info_nce

MakeEncoder = Callable[..., SentenceTransformer]
DIMENSION = 16


def equation_5(
    queries: Tensor,
    keys: Tensor,
    adversaries: Tensor,
    temperature: float,
    in_batch_negatives: bool = True,
    symmetric: bool = False,
) -> float:
    total = 0.0
    h, k, n = queries.tolist(), keys.tolist(), adversaries.tolist()
    for anchors, others in [(h, k), (k, h)] if symmetric else [(h, k)]:
        for i, anchor in enumerate(anchors):
            positive = math.exp(cosine(anchor, others[i]) / temperature)
            denominator = positive
            if in_batch_negatives:
                for j, other in enumerate(others):
                    if j != i:
                        denominator += math.exp(cosine(anchor, other) / temperature)
            for adversary in n:
                denominator += math.exp(cosine(anchor, adversary) / temperature)
            total -= math.log(positive / denominator) / len(anchors)
    return total / (2 if symmetric else 1)


def make_loss(encoder: SentenceTransformer, **options: object) -> AdCSELoss:
    settings: dict[str, object] = {"num_adversaries": 6, "generator": generator(5), "temperature": 0.3}
    return AdCSELoss(encoder, **(settings | options))  # type: ignore[arg-type]


FORMS = [(True, False), (True, True), (False, False), (False, True)]


@pytest.mark.parametrize(("in_batch_negatives", "symmetric"), FORMS)
def test_equals_equation_5_as_a_loop(encoder: SentenceTransformer, in_batch_negatives: bool, symmetric: bool) -> None:
    loss = make_loss(encoder, in_batch_negatives=in_batch_negatives, symmetric=symmetric).double()
    queries, keys = draw(4, DIMENSION), draw(4, DIMENSION, seed=1)
    expected = equation_5(queries, keys, loss.adversaries.vectors, 0.3, in_batch_negatives, symmetric)
    assert loss.compute_loss_from_embeddings([queries, keys]).item() == pytest.approx(expected, abs=1e-12)
    others = {equation_5(queries, keys, loss.adversaries.vectors, 0.3, *form) for form in FORMS}
    assert len(others) == len(FORMS), "the forms must differ for this to show anything"


@pytest.mark.parametrize(("in_batch_negatives", "symmetric"), FORMS)
@pytest.mark.parametrize("climbed", [None, 0.1])
def test_adversaries_step_as_torch_sgd_does(
    encoder: SentenceTransformer, in_batch_negatives: bool, symmetric: bool, climbed: float | None
) -> None:
    loss = make_loss(
        encoder,
        in_batch_negatives=in_batch_negatives,
        symmetric=symmetric,
        adversary_temperature=climbed,
        adversary_learning_rate=0.3,
        adversary_weight_decay=0.01,
    ).double()
    reference = loss.adversaries.vectors.clone().requires_grad_()
    optimizer = torch.optim.SGD([reference], lr=0.3, momentum=0.9, weight_decay=0.01, maximize=True)
    for step in range(4):
        queries, keys = draw(5, DIMENSION, seed=step), draw(5, DIMENSION, seed=10 + step)
        directions = [(queries, keys), (keys, queries)] if symmetric else [(queries, keys)]
        optimizer.zero_grad()
        torch.stack(
            [
                adversarial_info_nce(
                    a, b, reference, temperature=climbed or 0.3, in_batch_negatives=in_batch_negatives
                )[0]
                for a, b in directions
            ]
        ).mean().backward()
        optimizer.step()
        loss.compute_loss_from_embeddings([queries, keys])
        torch.testing.assert_close(loss.adversaries.vectors, reference.detach(), rtol=0, atol=1e-10)
    assert (loss.adversaries.vectors - make_loss(encoder).double().adversaries.vectors).abs().max() > 0.01


def test_the_temperature_of_the_climb_as_a_loop(encoder: SentenceTransformer) -> None:
    """The encoder's loss stays at tau; an adversary's step is the slope of the loss at the other temperature."""
    rate, plain = 0.1, {"adversary_momentum": 0.0, "adversary_weight_decay": 0.0}
    loss = make_loss(encoder, adversary_temperature=0.1, adversary_learning_rate=rate, **plain).double()
    queries, keys, start = draw(4, DIMENSION), draw(4, DIMENSION, seed=1), loss.adversaries.vectors.clone()
    value = loss.compute_loss_from_embeddings([queries, keys])
    assert value.item() == pytest.approx(equation_5(queries, keys, start, 0.3), abs=1e-12)
    steps = (loss.adversaries.vectors - start) / rate
    for m, d in ((0, 0), (3, 7), (5, DIMENSION - 1)):
        slopes = {}
        for temperature in (0.1, 0.3):
            ends = []
            for shift in (-1e-5, 1e-5):
                moved = start.clone()
                moved[m, d] += shift
                ends.append(equation_5(queries, keys, moved, temperature))
            slopes[temperature] = (ends[1] - ends[0]) / 2e-5
        assert steps[m, d].item() == pytest.approx(slopes[0.1], rel=1e-5, abs=1e-9)
        assert abs(slopes[0.1] - slopes[0.3]) > 1e-3


@pytest.mark.parametrize("tied", [False, True])
def test_adversaries_from_features_are_the_keys_of_the_first_batches(encoder: SentenceTransformer, tied: bool) -> None:
    loss = make_loss(encoder, num_adversaries=7, adversary_start="features", adversary_learning_rate=0.2, tied=tied)
    twin, first = make_loss(encoder, num_adversaries=7), loss.double().adversaries.vectors.clone()
    assert torch.equal(first, twin.double().adversaries.vectors), (
        "until a key replaces it, an adversary is a random one"
    )
    batches = [(draw(3, DIMENSION, seed=step), draw(3, DIMENSION, seed=10 + step)) for step in range(4)]
    expected = first.tolist()
    for step, (queries, keys) in enumerate(batches):
        with torch.no_grad():
            loss.compute_loss_from_embeddings([queries, keys])  # an evaluation draws nothing
        value = loss.compute_loss_from_embeddings([queries, keys.clone().requires_grad_()])
        assert value.item() == pytest.approx(equation_5(queries, keys, torch.tensor(expected), 0.3), abs=1e-6)
        now = loss.adversaries.vectors.tolist()
        for m in range(3 * step, min(3 * step + 3, 7)):  # the last of the third batch's keys find no place
            key = keys[m - 3 * step].tolist()
            expected[m] = [x / math.hypot(*key) for x in key]
            assert now[m] == pytest.approx(expected[m], abs=1e-12)
            assert loss.adversaries.velocity[m].abs().max() == 0
            assert torch.equal(loss.adversaries.origins[m], loss.adversaries.vectors[m])
        if step:
            assert now[0] != pytest.approx(expected[0], abs=1e-4), "adversaries climb as soon as they are drawn"
        expected = now
    assert int(loss.adversaries.drawn) == 7
    angles = [
        math.degrees(math.acos(cosine(a, b)))
        for a, b in zip(loss.adversaries.origins.tolist(), loss.adversaries.vectors.tolist(), strict=True)
    ]
    assert loss.instruments["adversary_angle"].item() == pytest.approx(sum(angles) / 7, abs=1e-6)
    assert loss.instruments["adversary_angle"] > 1
    assert not loss.adversaries.vectors.requires_grad


def test_adversaries_from_features_take_more_of_the_softmax(encoder: SentenceTransformer, sentences: list[str]) -> None:
    shares = {}
    features = [encoder.preprocess(sentences)]
    for start in ("random", "features"):
        loss = make_loss(encoder, adversary_start=start, temperature=0.05)
        for _ in range(2):
            loss(features)
        shares[start] = loss.instruments["adversary_share"]
    assert shares["features"] > 10 * shares["random"]


@pytest.mark.parametrize(("in_batch_negatives", "symmetric"), FORMS)
def test_update_raises_the_loss(encoder: SentenceTransformer, in_batch_negatives: bool, symmetric: bool) -> None:
    loss = make_loss(encoder, in_batch_negatives=in_batch_negatives, symmetric=symmetric, adversary_weight_decay=0.0)
    embeddings = [draw(5, DIMENSION), draw(5, DIMENSION, seed=1)]
    loss.adversaries.config["adversary_learning_rate"] = 0.0
    first = loss.compute_loss_from_embeddings(embeddings)
    assert loss.compute_loss_from_embeddings(embeddings) == first
    loss.adversaries.config["adversary_learning_rate"] = 0.1
    values = [loss.compute_loss_from_embeddings(embeddings).item() for _ in range(10)]
    assert values[0] == first
    assert values == sorted(values)
    assert values[-1] > values[0] + 1e-3


def test_without_adversaries_it_is_the_usual_in_batch_loss(encoder: SentenceTransformer) -> None:
    loss = make_loss(encoder, num_adversaries=0, temperature=0.05)
    embeddings = [draw(5, DIMENSION), draw(5, DIMENSION, seed=1)]
    expected = MultipleNegativesRankingLoss(encoder, scale=20).compute_loss_from_embeddings(embeddings, None)
    torch.testing.assert_close(loss.compute_loss_from_embeddings(embeddings), expected)


def test_tied_without_adversaries_is_simcse_with_a_head(
    still_encoder: SentenceTransformer, sentences: list[str]
) -> None:
    loss = make_loss(still_encoder, num_adversaries=0, tied=True)
    simcse = SimCSELoss(still_encoder, temperature=0.3, projection=True)
    simcse.step.projection_head = loss.step.projection_head
    features = [still_encoder.preprocess(sentences)]
    torch.testing.assert_close(loss(features), simcse(features))


def test_inspectable_attributes(encoder: SentenceTransformer) -> None:
    loss = make_loss(encoder)
    embeddings = [draw(4, DIMENSION), draw(4, DIMENSION, seed=1)]
    assert loss.instruments["adversary_share"].isnan()
    n, queries = loss.adversaries.vectors.tolist(), embeddings[0].tolist()
    loss.compute_loss_from_embeddings(embeddings)
    expected = sum(cosine(h, a) for h in queries for a in n) / (len(n) * 4)
    assert loss.instruments["adversary_similarity"].item() == pytest.approx(expected, abs=1e-6)
    share = 0.0
    for h in queries:
        batch = sum(math.exp(cosine(h, k) / 0.3) for k in embeddings[1].tolist())
        mine = sum(math.exp(cosine(h, a) / 0.3) for a in n)
        share += mine / (mine + batch) / 4
    assert loss.instruments["adversary_share"].item() == pytest.approx(share, abs=1e-6)
    hard = AdCSELoss(encoder, num_adversaries=6, adversary_learning_rate=1.0, generator=generator(5))
    for _ in range(50):
        hard.compute_loss_from_embeddings(embeddings)
    assert hard.instruments["adversary_similarity"] > loss.instruments["adversary_similarity"] + 0.05


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_rows_gradients_and_untouched_features(
    encoder: SentenceTransformer, sentences: list[str], tied: bool, count: int
) -> None:
    loss = make_loss(encoder, tied=tied)
    features = [encoder.preprocess(column) for column in columns(sentences, count).values()]
    before = copy.deepcopy(features)
    with count_rows(encoder) as passes:
        loss(features).backward()
    assert passes == [2 * len(sentences) if tied else len(sentences)]
    for column, kept in zip(features, before, strict=True):
        assert column.keys() == kept.keys()
        assert all(torch.equal(column[k], kept[k]) for k in kept if isinstance(kept[k], Tensor))
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in loss.step.projection_head.parameters())
    used = [p for name, p in encoder.named_parameters() if "pooler" not in name]
    assert all(p.grad is not None for p in used)
    if not tied:
        assert all(p.grad is None and not p.requires_grad for p in loss.momentum_encoder.parameters())
    assert {name for name, _ in loss.named_parameters(remove_duplicate=False)} >= {"step.projection_head.0.weight"}


def test_keys_come_from_the_momentum_encoder(make_encoder: MakeEncoder, sentences: list[str]) -> None:
    encoder = make_encoder(dropout=0.0)
    loss = make_loss(encoder, momentum=0.9)
    features = [encoder.preprocess(column) for column in columns(sentences, 2).values()]
    loss(features)
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *loss.step.projection_head.parameters()):
            parameter.mul_(1.05)
    adversaries = loss.adversaries.vectors.clone()
    value = loss(features)
    with torch.no_grad():
        own = loss.momentum_encoder
        keys = own.projection_head(own.encoder(dict(features[1]))["sentence_embedding"])
        queries = loss.step.projection_head(encoder(dict(features[0]))["sentence_embedding"])
    assert value.item() == pytest.approx(equation_5(queries, keys, adversaries, 0.3, True, False), abs=1e-5)
    q = dict(encoder.named_parameters())
    for name, p in own.encoder.named_parameters():
        torch.testing.assert_close(p.data, (0.9 + 0.1 * 1.05) / 1.05 * q[name].data)


def test_a_shared_head_makes_queries_and_keys(make_encoder: MakeEncoder, sentences: list[str]) -> None:
    """As in the released code: the keys are g_q(f_p(x)), and teach the head nothing."""
    encoder = make_encoder(dropout=0.0)
    loss = make_loss(encoder, shared_head=True, momentum=0.9, adversary_learning_rate=0.0)
    features = [encoder.preprocess(column) for column in columns(sentences, 2).values()]
    assert loss.momentum_encoder.projection_head is None
    assert not any("momentum_encoder.projection_head" in name for name in loss.state_dict())
    loss(features)
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *loss.step.projection_head.parameters()):
            parameter.mul_(1.05)
    value = loss(features)
    value.backward()
    found = [parameter.grad.clone() for parameter in loss.step.projection_head.parameters()]
    head = copy.deepcopy(loss.step.projection_head)
    with torch.no_grad():
        before = loss.momentum_encoder.encoder(dict(features[1]))["sentence_embedding"]
        queries = encoder(dict(features[0]))["sentence_embedding"]
        keys = head(before)
    assert value.item() == pytest.approx(equation_5(head(queries), keys, loss.adversaries.vectors, 0.3), abs=1e-5)
    head.zero_grad()
    adversarial_info_nce(head(queries), keys, loss.adversaries.vectors, temperature=0.3)[0].backward()
    for own, expected in zip(found, head.parameters(), strict=True):
        torch.testing.assert_close(own, expected.grad)
    with_keys = torch.autograd.grad(
        adversarial_info_nce(head(queries), head(before), loss.adversaries.vectors, temperature=0.3)[0],
        [*head.parameters()],
    )
    assert (with_keys[0] - found[0]).abs().max() > 1e-4, "the keys' gradient would be another"


def test_composition_with_its_own_rows(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    """What a wrapping loss does: views, one pass of its own, the embeddings handed back."""
    features = [still_encoder.preprocess(sentences)]
    for tied, times in ((False, 1), (True, 2)):
        loss, twin = (make_loss(still_encoder, tied=tied) for _ in range(2))
        twin.load_state_dict(loss.state_dict())
        rows, count = loss.views(features)
        assert count == times
        assert len(rows["input_ids"]) == times * len(sentences)
        embeddings = still_encoder(dict(rows))["sentence_embedding"].chunk(count)
        value = loss.compute_loss_from_embeddings(embeddings, sentence_features=features)
        torch.testing.assert_close(value, twin(features))
        torch.testing.assert_close(loss.adversaries.vectors, twin.adversaries.vectors)


def test_evaluation_changes_nothing(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder)
    features = [encoder.preprocess(sentences)]
    for trained in (False, True):
        if trained:
            loss(features).backward()
        before, share = snapshot(loss), loss.instruments["adversary_share"]
        with torch.no_grad():
            assert loss(features).isfinite()
            encoder.eval()
            assert loss(features) == loss(features)
            encoder.train()
        assert not differing(before, snapshot(loss))
        assert loss.instruments["adversary_share"] is share
    loss(features)
    changed = differing(before, snapshot(loss))
    assert {"adversaries.vectors", "adversaries.velocity"} <= changed


def test_first_forward_copies_what_the_model_has_become(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder)
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *loss.step.projection_head.parameters()):
            parameter.add_(0.1)
    loss([encoder.preprocess(sentences)])
    assert not differing(snapshot(encoder), snapshot(loss.momentum_encoder.encoder))
    assert not differing(snapshot(loss.step.projection_head), snapshot(loss.momentum_encoder.projection_head))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ["fit", "trainer"])
def test_trains(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, how: str, count: int) -> None:
    loss = make_loss(encoder)
    before = snapshot(loss)
    data = columns(sentences, count)
    if how == "fit":
        fit(encoder, loss, data, tmp_path)
    else:
        trainer = train(encoder, loss, data, tmp_path, eval_strategy="no")
        frozen = set(map(id, loss.momentum_encoder.parameters()))
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        assert not frozen & set(map(id, optimizer.state)), "the momentum copy has optimizer state"
        assert not frozen & {id(p) for group in optimizer.param_groups for p in group["params"]}
    changed = differing(before, snapshot(loss))
    for part in ("model.0.", "step.projection_head.", "momentum_encoder.encoder.", "momentum_encoder.projection_head."):
        assert any(name.startswith(part) for name in changed), part
    assert {"adversaries.vectors", "adversaries.velocity", "momentum_encoder.initialised"} <= changed
    encoder.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert torch.equal(
        encoder.encode(sentences, convert_to_tensor=True), again.encode(sentences, convert_to_tensor=True)
    )


def test_trainer_evaluation_moves_no_state(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    loss = make_loss(encoder)
    trainer = train(encoder, loss, columns(sentences), tmp_path)
    before = snapshot(loss)
    metrics = trainer.evaluate(eval_dataset=trainer.train_dataset)
    assert math.isfinite(metrics["eval_loss"])
    assert not differing(before, snapshot(loss))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"projection": False, "symmetric": True},
        {"tied": True},
        {"shared_head": True, "adversary_temperature": 0.1},
        {"adversary_start": "features", "num_adversaries": 5},
        {"adversary_start": "features", "num_adversaries": 11},  # the checkpoint has eight of them
    ],
)
def test_resume_is_seamless(
    make_encoder: MakeEncoder, sentences: list[str], tmp_path: Path, options: dict[str, object]
) -> None:
    def loss(model: SentenceTransformer) -> AdCSELoss:
        return make_loss(model, generator=None, momentum=0.8, **options)

    assert_resume_is_seamless(lambda: make_encoder(), loss, columns(sentences), tmp_path)


@pytest.mark.slow
def test_resume_with_an_adapter_added_after_the_loss(
    make_encoder: MakeEncoder, sentences: list[str], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")

    def loss(model: SentenceTransformer) -> AdCSELoss:
        made = make_loss(model, momentum=0.8)
        torch.manual_seed(11)
        model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"], lora_dropout=0.1))
        return made

    assert_resume_is_seamless(lambda: make_encoder(), loss, columns(sentences), tmp_path)


def test_gradient_accumulation_updates_once_per_forward(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    loss = make_loss(encoder, momentum=0.5)
    seen: list[Tensor] = []
    update = loss.momentum_encoder.update

    def note(*args: object) -> None:
        update(*args)  # type: ignore[arg-type]
        seen.append(loss.momentum_encoder.encoder[0].model.embeddings.word_embeddings.weight.clone())

    loss.momentum_encoder.update = note  # type: ignore[method-assign]
    train(encoder, loss, columns(sentences * 2), tmp_path, gradient_accumulation_steps=2)
    assert len(seen) == 4
    assert torch.equal(seen[0], seen[1]), "the weights do not move inside an accumulation"
    assert not torch.equal(seen[1], seen[2])


def test_survives_replacing_the_model_and_deep_copies(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder)
    features = [encoder.preprocess(sentences)]
    loss(features)
    loss.model = Wrapped(encoder)
    assert loss(features).isfinite()
    twin = copy.deepcopy(loss)
    before = snapshot(twin)
    loss(features)
    assert not differing(before, snapshot(twin))


def test_bf16_autocast_is_finite_and_close(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = [still_encoder.preprocess(sentences)]
    loss = make_loss(still_encoder)
    twin = copy.deepcopy(loss)
    expected = loss(features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = twin(features)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)
    value.backward()
    torch.testing.assert_close(twin.adversaries.vectors, loss.adversaries.vectors, rtol=0, atol=1e-3)


def test_trainer_in_bf16_runs_the_copy_under_autocast_too(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    loss = make_loss(encoder)
    train(encoder, loss, columns(sentences), tmp_path, bf16=True)
    seen: list[torch.dtype] = []
    linear = loss.momentum_encoder.encoder[0].model.encoder.layer[0].attention.self.query
    linear.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    loss([encoder.preprocess(sentences)])
    assert seen == [torch.bfloat16]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_model_in_half_precision(encoder: SentenceTransformer, sentences: list[str], when: str) -> None:
    if when == "before":
        encoder.bfloat16()
    loss = make_loss(encoder)
    encoder.bfloat16()
    for _ in range(2):
        value = loss([encoder.preprocess(sentences)])
        value.backward()
        assert value.isfinite()


@pytest.mark.parametrize("adversaries", [0, 6])
@pytest.mark.parametrize("text", [["one sentence"], [""], ["[SEP] [CLS]", ""], ["a cat"] * 4, ["a cat " * 50, "b"]])
def test_edge_batches(encoder: SentenceTransformer, text: list[str], adversaries: int) -> None:
    loss = make_loss(encoder, num_adversaries=adversaries, symmetric=True)
    for _ in range(2):
        value = loss([encoder.preprocess(text)])
        value.backward()
        assert value.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in loss.step.projection_head.parameters())
    assert loss.adversaries.vectors.isfinite().all()


def test_adversaries_have_a_source_of_their_own(make_encoder: MakeEncoder) -> None:
    encoder = make_encoder()
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = AdCSELoss(encoder, num_adversaries=3, projection=False).adversaries.vectors
    assert torch.equal(torch.rand(1), expected)
    torch.manual_seed(1)
    assert torch.equal(AdCSELoss(encoder, num_adversaries=3).adversaries.vectors, first)
    torch.manual_seed(2)
    assert not torch.equal(AdCSELoss(encoder, num_adversaries=3).adversaries.vectors, first)
    assert torch.equal(make_loss(encoder).adversaries.vectors, make_loss(encoder).adversaries.vectors)


def test_memory_is_one_copy_and_the_adversaries(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder)
    for _ in range(2):
        loss([encoder.preprocess(sentences)]).backward()

    def size(module: torch.nn.Module) -> int:
        tensors = {t.data_ptr(): t.nbytes for t in (*module.parameters(), *module.buffers())}
        return sum(tensors.values())

    assert loss.step.projection_head is not None
    vectors = 3 * loss.adversaries.vectors.nbytes  # with their velocity, and what they were when drawn
    flag = 1
    assert size(loss) == 2 * size(encoder) + 2 * size(loss.step.projection_head) + vectors + flag


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_adversaries": -1}, "num_adversaries must be a whole number between 0 and 1000000, got -1"),
        ({"num_adversaries": 1.5}, "num_adversaries must be a whole number between 0 and 1000000, got 1.5"),
        ({"num_adversaries": 0, "in_batch_negatives": False}, "leaves no negatives"),
        ({"momentum": 1.01}, r"momentum must be between 0 and 1, got 1.01"),
        ({"momentum": -0.5}, r"momentum must be between 0 and 1, got -0.5"),
        ({"temperature": 0}, "temperature must be between 0.0001 and 10000, got 0"),
        ({"adversary_learning_rate": -1}, "adversary_learning_rate must be between 0 and 1000000, got -1"),
        ({"adversary_momentum": 1.0}, r"adversary_momentum must be between 0 and 1, 1 excluded, got 1.0"),
        ({"adversary_weight_decay": -1}, "adversary_weight_decay must be between 0 and 1000000, got -1"),
        ({"adversary_temperature": 0}, "adversary_temperature must be between 0.0001 and 10000, got 0"),
        ({"adversary_start": "keys"}, r"adversary_start must be one of 'random', 'features', got 'keys'"),
        ({"shared_head": True, "projection": False}, "^shared_head=True needs a head, got projection=False: set proj"),
    ],
)
def test_bad_settings(encoder: SentenceTransformer, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_loss(encoder, **options)


def test_bad_inputs(encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = encoder.preprocess(sentences)
    loss = make_loss(encoder)
    with pytest.raises(ValueError, match="got 3"):
        loss([features] * 3)
    with pytest.raises(ValueError, match=r"two views of one shape, got \[\(4, 16\), \(3, 16\)\]"):
        loss.compute_loss_from_embeddings([draw(4, 16), draw(3, 16)])
    with pytest.raises(ValueError, match="two views"):
        loss.compute_loss_from_embeddings([draw(4, 16)])
    with pytest.raises(ValueError, match="two views"):
        make_loss(encoder, tied=True).compute_loss_from_embeddings([draw(4, 16)], sentence_features=[features])
    for projection in (True, False):
        inner = make_loss(encoder, projection=projection)
        before = snapshot(inner)
        with pytest.raises(ValueError, match=r"^AdCSELoss cannot run inside MatryoshkaLoss.* use SimCSELoss"):
            MatryoshkaLoss(encoder, inner, [16, 8])([features], None)
        assert not differing(before, snapshot(inner))
    encoder.requires_grad_(False)
    with pytest.raises(ValueError, match="model is frozen"):
        loss([features])
    with pytest.raises(ValueError, match="model is frozen"):
        make_loss(encoder)


def test_prompts_and_a_dictionary_of_losses(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    losses = {"one": make_loss(encoder), "two": make_loss(encoder, tied=True)}
    data = DatasetDict({name: Dataset.from_dict(columns(sentences)) for name in losses})
    before = {name: snapshot(loss) for name, loss in losses.items()}
    trainer = SentenceTransformerTrainer(
        encoder, args=arguments(tmp_path, prompts="the old "), train_dataset=data, loss=losses
    )
    LossStateCallback.attach(trainer)
    trainer.train()
    for name, loss in losses.items():
        assert "adversaries.vectors" in differing(before[name], snapshot(loss))


def test_card(encoder: SentenceTransformer) -> None:
    config = make_loss(encoder, momentum=0.9).get_config_dict()
    assert (config["num_adversaries"], config["momentum"], config["tied"]) == (6, 0.9, False)
    assert (config["adversary_start"], config["adversary_temperature"], config["shared_head"]) == (
        "random",
        None,
        False,
    )
    assert make_loss(encoder, tied=True).get_config_dict()["momentum"] is None
    assert "AdCSE" in make_loss(encoder).citation


@pytest.mark.slow
def test_two_processes_stay_equal(encoder: SentenceTransformer, tmp_path: Path) -> None:
    encoder.save(str(tmp_path / "model"))
    run_in_two_processes("tests.losses.adcse_worker", str(tmp_path))
    for case in ("own", "gathered", "features"):
        first, second = (load_file(str(tmp_path / f"state-{case}-{rank}.safetensors")) for rank in range(2))
        assert differing(first, second) == {"start"}
        assert first["adversaries.velocity"].abs().max() > 0
    assert first["adversaries.drawn"] == 6
    steps = [load_file(str(tmp_path / f"step{rank}.safetensors")) for rank in range(2)]
    assert all(step["refused"] for step in steps)
    reference = make_loss(encoder).double().adversaries.vectors.clone().requires_grad_()
    optimizer = torch.optim.SGD([reference], lr=3e-3, momentum=0.9, weight_decay=1e-4, maximize=True)
    batches = [(draw(3, DIMENSION, seed=rank), draw(3, DIMENSION, seed=10 + rank)) for rank in range(2)]
    torch.stack([adversarial_info_nce(q, k, reference, temperature=0.3)[0] for q, k in batches]).mean().backward()
    optimizer.step()
    for step in steps:
        torch.testing.assert_close(step["adversaries"], reference.detach(), rtol=0, atol=1e-10)


# ---- encoders without dropout


@pytest.mark.parametrize("tied", [False, True])
def test_without_dropout_it_says_so_once(
    make_encoder: Callable[..., SentenceTransformer],
    sentences: list[str],
    caplog: pytest.LogCaptureFixture,
    tied: bool,
) -> None:
    for dropout, count, told in ((0.0, 1, True), (0.0, 2, False), (0.1, 1, False)):
        caplog.clear()
        model = make_encoder(dropout=dropout).train()
        loss = make_loss(model, tied=tied)
        features = [model.preprocess(column) for column in columns(sentences, count).values()]
        for _ in range(2):
            loss(features).backward()
        assert [record.message[:34] for record in caplog.records] == ["AdCSELoss got the same vector twice"[:34]] * told
        if told:
            assert "dropout=0.1" in caplog.text


def test_without_dropout_the_negatives_still_teach(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(still_encoder.train())
    loss([still_encoder.preprocess(sentences)]).backward()
    assert max(p.grad.abs().max() for p in still_encoder.parameters() if p.grad is not None) > 1e-3


def test_instruments(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder)
    features = [encoder.preprocess(sentences)]
    loss(features)
    found = loss.instruments
    assert set(found) == {f"adversary_{name}" for name in ("similarity", "share", "angle")}
    assert all(value.dim() == 0 and value.isfinite() and not value.requires_grad for value in found.values())
    with torch.no_grad():
        loss(features)
    assert loss.instruments == found
    assert all(value.isnan() for value in make_loss(encoder).instruments.values())
    assert make_loss(encoder, num_adversaries=0).instruments == {}


# ---- mini_batch_size; see also parts/test_gradient_cache.py


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": True},
        {"shared_head": True, "symmetric": True, "adversary_temperature": 0.1},
        {"adversary_start": "features", "num_adversaries": 11, "adversary_temperature": 0.1},
    ],
)
def test_in_mini_batches_all_that_it_owns_moves_once(
    still_encoder: SentenceTransformer, sentences: list[str], options: dict[str, object]
) -> None:
    features = [still_encoder.train().preprocess(sentences)]
    losses, found = [], []
    for size in (None, 3):
        torch.manual_seed(0)
        model = copy.deepcopy(still_encoder)
        loss = make_loss(model, momentum=0.5, adversary_learning_rate=0.1, mini_batch_size=size, **options)
        optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
        values = []
        for _ in range(3):
            optimizer.zero_grad()
            values.append(loss(features))
            values[-1].backward()
            optimizer.step()
        found.append(torch.stack(values).detach())
        losses.append(loss)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    for (name, whole), cached in zip(losses[0].state_dict().items(), losses[1].state_dict().values(), strict=True):
        torch.testing.assert_close(cached, whole, rtol=1e-3, atol=1e-4, msg=name)


def test_in_mini_batches_the_momentum_encoder_sees_them_too(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder.train(), mini_batch_size=3)
    with count_rows(loss.momentum_encoder.encoder) as seen:
        loss([encoder.preprocess(sentences)])  # makes the copy anew
    with count_rows(loss.momentum_encoder.encoder) as seen:
        loss([encoder.preprocess(sentences)]).backward()
    assert seen == [3, 3, 2]


def test_in_mini_batches_matryoshka_is_refused_too(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = make_loss(encoder, projection=False, mini_batch_size=3)
    wrapped = MatryoshkaLoss(encoder, loss, [16, 8])
    with pytest.raises(ValueError, match=r"^AdCSELoss cannot run inside MatryoshkaLoss, .* use SimCSELoss"):
        wrapped([encoder.preprocess(sentences)], None)
