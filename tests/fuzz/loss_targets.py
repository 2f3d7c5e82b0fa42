"""The losses: their parameters and what each allows."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer

from st_extras import encoders, losses
from st_extras.text.frequency import FrequencyTable
from tests.fuzz import values as v
from tests.fuzz import world
from tests.fuzz.values import Target

_MODEL = v.instance(SentenceTransformer)
_TABLE = v.instance(FrequencyTable)


def loss_targets() -> list[Target]:
    """Each loss."""
    model, table = {"model": world.encoder()}, {"frequency_table": world.table()}
    views: dict[str, v.Domain] = {
        "model": _MODEL,
        "temperature": v.TEMPERATURE,
        "augmentations": v.augmentations,
        "cutoff_rate": v.FRACTION,
        "gather_across_devices": v.boolean,
        "mini_batch_size": v.optional(v.count(1)),
    }
    generator: dict[str, v.Domain] = {"generator": v.optional(v.instance(torch.Generator))}
    rare: dict[str, v.Domain] = {"model": _MODEL, "frequency_table": _TABLE, "low_frequency_ratio": v.FRACTION}
    masks: dict[str, v.Domain] = {"mask_ratio": v.FRACTION, "always_mask_one": v.boolean}
    reversal: dict[str, v.Domain] = {
        "reversal_strength": v.POSITIVE,
        "reversal_steps": v.count(0),
        "adversary": v.choice("reversal", "confusion"),
        "balanced": v.boolean,
    }
    return [
        Target(losses.SimCSELoss, views | {"projection": v.boolean}, model),
        Target(losses.ConSERTLoss, views | generator | {"include_positive": v.boolean, "dropout": v.boolean}, model),
        Target(
            losses.DCLRLoss,
            views
            | generator
            | {
                "threshold": v.optional(v.either(v.real(-1, 1, closed=(True, True), usual=(0, 1)))),
                "masked_share": v.optional(v.either(v.FRACTION)),
                "noise_ratio": v.real(0, 1000, closed=(True, True), usual=(0, 1000)),
                "noise_std": v.POSITIVE,
                "noise_steps": v.count(0, 10**9),
                "noise_step_size": v.NOT_NEGATIVE,
                "noise_norm": v.choice("gaussian", "unit"),
                "noise_temperature": v.optional(v.TEMPERATURE),
                "include_positive": v.boolean,
                "projection": v.boolean,
                "complementary_table": v.optional(v.instance(encoders.EmbeddingTable)),
            },
            model,
        ),
        Target(
            losses.DCLRLoss,
            {"masked_share": v.optional(v.FRACTION)},
            model | {"complementary_model": "start"},
            name="DCLRLoss, guided by the start",
        ),
        Target(
            losses.AdCSELoss,
            generator
            | {
                "model": _MODEL,
                "mini_batch_size": v.optional(v.count(1)),
                "num_adversaries": v.count(0, 10**9),
                "temperature": v.TEMPERATURE,
                "momentum": v.SHARE,
                "tied": v.boolean,
                "adversary_learning_rate": v.NOT_NEGATIVE,
                "adversary_momentum": v.either(v.SHARE),
                "adversary_weight_decay": v.NOT_NEGATIVE,
                "adversary_temperature": v.optional(v.TEMPERATURE),
                "adversary_start": v.choice("random", "features"),
                "shared_head": v.boolean,
                "in_batch_negatives": v.boolean,
                "symmetric": v.boolean,
                "projection": v.boolean,
                "key_dropout": v.boolean,
                "gather_across_devices": v.boolean,
            }
            | {"momentum": v.either(v.SHARE), "tied": v.either(v.boolean), "symmetric": v.either(v.boolean)},
            model,
        ),
        Target(losses.FrequencyAdversarialLoss, rare | reversal, model | table),
        Target(losses.IncompleteSentenceFilteringLoss, rare | masks | generator, model | table),
        Target(
            losses.SLTFAILoss,
            rare
            | masks
            | reversal
            | generator
            | {
                "base_loss": v.optional(v.instance(torch.nn.Module)),
                "base_weight": v.NOT_NEGATIVE,
                "adversarial_weight": v.NOT_NEGATIVE,
                "incomplete_weight": v.NOT_NEGATIVE,
                "warmup_steps": v.count(0),
                "warmup_discriminators": v.either(v.boolean),
            },
            model | table,
        ),
        Target(
            losses.PaSeRLoss,
            generator
            | {
                "model": _MODEL,
                "num_decoder_layers": v.count(1, 10**6),
                "difference_scale": v.NOT_NEGATIVE,
                "product_scale": v.NOT_NEGATIVE,
                "generative_weight": v.NOT_NEGATIVE,
                "mlm_weight": v.optional(v.NOT_NEGATIVE),
                "base_loss": v.optional(v.instance(torch.nn.Module)),
                "decoder_dropout": v.real(0, 1, closed=(True, False), usual=(0, 0.99)),
                "decoder_output": v.choice("tied", "own", "detached"),
                "decoder_start": v.choice("xavier", "normal"),
                "decoder_pre_norm": v.boolean,
                "decoder_warmup_steps": v.count(0),
                "max_phrase_length": v.optional(v.count(3, 10**9)),
            },
            model,
        ),
        Target(
            losses.epochs_to_steps,
            {
                "epochs": v.NOT_NEGATIVE,
                "num_sentences": v.count(1),
                "batch_size": v.count(1),
                "num_processes": v.count(1),
            },
            {"epochs": 1.0, "num_sentences": 100, "batch_size": 8},
        ),
    ]
