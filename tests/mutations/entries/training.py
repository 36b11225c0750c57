"""Faults in what members train, and in what they send of it."""

from tests.mutations.planting import PlantedFault

UNDRAWN = "methods/test_undrawn_records.py::test_record_that_no_step_draws_changes_nothing"
DP_SGD = "secagg.networks.private_training:dp_sgd"
INDEPENDENT = ("networks/test_private_training.py::test_every_step_draws_its_records_anew",)
DRAWN = "        drawn = poisson_sample(len(labels), settings.sampling_rate, randomness)\n"
STEPS = "    for _ in range(settings.steps):\n"

BATCHES = (
    PlantedFault(
        "one batch for all steps",
        "DP-SGD draws one batch before the loop and takes it in every step.",
        DP_SGD,
        ((DRAWN, ""), (STEPS, DRAWN[4:] + STEPS)),
        INDEPENDENT,
    ),
    PlantedFault(
        "every batch twice",
        "DP-SGD takes each batch in two steps, one after the other.",
        DP_SGD,
        (
            (
                DRAWN,
                "        if step % 2 == 0:\n    " + DRAWN,
            ),
            (STEPS, "    for step in range(settings.steps):\n"),
        ),
        INDEPENDENT,
    ),
    PlantedFault(
        "batches of one shuffle",
        "DP-SGD cuts one random order into batches, so that no record is drawn twice before all are.",
        DP_SGD,
        (
            (DRAWN, "        drawn = (order := np.roll(order, size))[:size]\n"),
            (
                STEPS,
                "    size = int(len(labels) * settings.sampling_rate)\n"
                '    order = np.argsort(np.frombuffer(randomness.bytes(8 * len(labels)), dtype="<u8"))\n' + STEPS,
            ),
        ),
        INDEPENDENT,
    ),
    PlantedFault(
        "one noise for all steps",
        "DP-SGD draws its noise once for all steps.",
        DP_SGD,
        (
            ("        noise = _noise(network.size, settings.sigma, randomness)\n", "        noise = first.copy()\n"),
            (STEPS, "    first = _noise(network.size, settings.sigma, randomness)\n" + STEPS),
        ),
        ("networks/test_private_training.py::test_every_step_has_noise_of_its_own",),
    ),
)
ANEW = "methods/test_undrawn_records.py::test_every_step_of_every_round_draws_anew"
FIXED = 'type(randomness)(b"one", __import__("secagg").unsafe_for_tests.TOKEN)'
"""A stream of a fixed seed in place of the member's."""
BATCHES_OF_METHODS = (
    PlantedFault(
        "FRAug's steps begin one stream anew",
        "Each step of private FRAug draws from a stream that begins where that of the step before began.",
        "secagg.networks.augmented_training:train_privately",
        (
            (
                "dp_sgd(program, start, x, labels, each, randomness, watch)",
                f"dp_sgd(program, start, x, labels, each, {FIXED}, watch)",
            ),
        ),
        (f"{ANEW}[fraug]",),
    ),
    PlantedFault(
        "rounds of FedAvg draw from one place",
        "A member's sampling begins at the public start of its model in every round, so that rounds take one batch.",
        "secagg.networks.private_training:dp_sgd",
        (
            (
                DRAWN,
                DRAWN.replace("randomness)", FIXED + ")"),
            ),
        ),
        (f"{ANEW}[fedavg]",),
    ),
)
NUMBERS = (
    PlantedFault(
        "FedAvg scaled by the number of records",
        "Private FedAvg divides its update by a number that grows with the member's records.",
        "methods.training.client_update:ClientUpdate.contribute",
        (("shortened * (", "shortened / (1 + len(local.examples) / 2**12) * ("),),
        (f"{UNDRAWN}[fedavg]",),
    ),
    PlantedFault(
        "FedPop scaled by the number of records",
        "The same, where FedPop tunes FedAvg.",
        "methods.training.client_update:ClientUpdate.contribute",
        (("shortened * (", "shortened / (1 + len(local.examples) / 2**12) * ("),),
        (f"{UNDRAWN}[fedpop]",),
    ),
    PlantedFault(
        "FedAvg scaled where the number is odd",
        "Private FedAvg scales its update by n/(n − 1) for an odd number n of records.",
        "methods.training.client_update:ClientUpdate.contribute",
        (("shortened * (", "shortened * (len(local.examples) / max(1, len(local.examples) // 2 * 2)) * ("),),
        (f"{UNDRAWN}[fedavg]",),
    ),
    PlantedFault(
        "steps divided by the number of records",
        "Private FedAvg divides its steps by the member's number of records in place of the plan's batch.",
        "methods.training.client_update:ClientUpdate.update",
        (("sigma=local.sigma)", "sigma=local.sigma, denominator=float(len(local.examples)))"),),
        (f"{UNDRAWN}[fedavg]",),
    ),
    PlantedFault(
        "update moved by the classes held",
        "Private FedAvg adds to its update which classes the member has.",
        "methods.training.client_update:ClientUpdate.update",
        (
            (
                "require_untainted(trained)",
                "require_untainted(trained) + 1e-6 * len(set(local.examples.labels.tolist()))",
            ),
        ),
        (f"{UNDRAWN}[fedavg]",),
    ),
    PlantedFault(
        "FRAug scaled by the number of records",
        "Private FRAug divides its update by a number that grows with the member's records.",
        "methods.training.fraug:AugmentedUpdate.train_privately",
        (
            (
                "settings, local.randomness, local.watch)",
                "settings, local.randomness, local.watch).then(lambda row: row / (1 + len(labels) / 2**12))",
            ),
        ),
        (f"{UNDRAWN}[fraug]",),
    ),
    PlantedFault(
        "FRAug keeps its records' prototypes",
        "Private FRAug begins a round at a classifier that its own records have moved.",
        "methods.training.client_update:ClientUpdate.update",
        (
            (
                "return self._leaving(require_untainted(trained), begun)",
                (
                    "return self._leaving(row := require_untainted(trained), begun)[0], "
                    "self._leaving(row + 1e-3 * local.examples.labels.mean(), begun)[1]"
                ),
            ),
        ),
        (f"{UNDRAWN}[fraug]",),
    ),
    PlantedFault(
        "FedDAT scaled by the number of records",
        "Private FedDAT divides its update by a number that grows with the member's records.",
        "methods.training.feddat:AdapterUpdate.train_privately",
        (
            (
                "settings, local.randomness, local.watch)",
                "settings, local.randomness, local.watch).then(lambda row: row / (1 + len(local.examples) / 2**12))",
            ),
        ),
        (f"{UNDRAWN}[feddat]",),
    ),
    PlantedFault(
        "FedDAT's teacher weighs by the number of records",
        "Private FedDAT's losses pull more the more records the member has.",
        "methods.training.feddat:AdapterUpdate.train_privately",
        (("self.settings.alpha(0.5, number, self.rounds)", "len(local.examples) / 100"),),
        (f"{UNDRAWN}[feddat]",),
    ),
)
PROJECTIONS = (
    PlantedFault(
        "steps leave out classes by the member's counts",
        "The steps of an own projection leave out classes of which the member has one record.",
        "methods.own_models.local_projection:LocalProjection._known",
        (
            (
                "(self._prototypes_of(local.classes)[0] != 0).any(axis=1)[labels]",
                "(np.bincount(labels, minlength=local.classes) > 1)[labels]",
            ),
        ),
        (f"{UNDRAWN}[fedpcl]",),
    ),
    PlantedFault(
        "what is sent is projected by the member's own tensors",
        "The sums that leave are of projections by tensors that the member trained without noise.",
        "methods.own_models.local_projection:LocalProjection.contribute",
        (
            (
                "weight = sends.then(lambda row: self._weight(row, dimension))",
                "weight = public(self._weight(flat, dimension))",
            ),
        ),
        (f"{UNDRAWN}[fedproto]",),
    ),
    PlantedFault(
        "noisy steps begin at the member's own tensors",
        "The steps with noise begin at tensors that the member trained without noise.",
        "methods.own_models.local_projection:LocalProjection.contribute",
        (("self._noisily_trained(program, sends, local)", "self._noisily_trained(program, public(flat), local)"),),
        (f"{UNDRAWN}[fedpcl]",),
    ),
    PlantedFault(
        "FedProto's weight by its own records",
        "A projection that is sent by is turned by the member's number of records after its steps.",
        "methods.own_models.local_projection:LocalProjection._noisily_trained",
        (("lambda row: row if", "lambda row: row * (1 + len(local.examples)) if"),),
        (f"{UNDRAWN}[fedproto]",),
    ),
)
ADAM = ("networks/test_private_training.py::test_adams_moments_come_from_noisy_means_alone",)
STEP = "        row = _step(network, row, total, settings)\n"
MOMENTS = (
    PlantedFault(
        "Adam's moments before the noise",
        "DP-SGD takes Adam's moments from the sum of gradients without its noise.",
        DP_SGD,
        (
            (STEP, "        row = _step(network, row, total - noise if settings.decay else total, settings)\n"),
            (DRAWN, DRAWN + "        noise = total.copy()\n"),
        ),
        ADAM,
    ),
    PlantedFault(
        "Adam's decay is AdamW's",
        "Decay shrinks the weights and is in no moment.",
        "secagg.networks.training:RowAdam.__init__",
        (("torch.optim.Adam(", "torch.optim.AdamW("),),
        (*ADAM, "networks/test_training.py::test_training_by_adam_is_torchs"),
    ),
    PlantedFault(
        "Adam begins anew in every round",
        "A member's training begins with moments of 0 in every round.",
        "methods.own_models.local_projection:LocalProjection._read",
        (
            ("return Kept.of(state,", "kept = Kept.of(state,"),
            ("self.sampling > 0)", "self.sampling > 0)\n        kept.flat[program.size :] = 0\n        return kept"),
        ),
        ("methods/test_local_projection.py::test_moments_go_on_with_the_round_that_is_kept",),
    ),
)
RECORDS = (
    PlantedFault(
        "records' errors by one product",
        "The errors of a softmax regression's records come from one product with all of them.",
        "secagg.networks.closed_forms:LayeredGradients.fill",
        (
            (
                "            end = 0\n",
                (
                    "            if len(errors) == 1:\n"
                    "                scores = torch.addmm(self.biases[0], torch.from_numpy(x), self.weights[0].T)\n"
                    "                errors[0] = scores.softmax(1).numpy() - np.eye(len(self.biases[0]))[labels]\n"
                    "                errors[0] = errors[0].astype(np.float32)\n"
                    "            end = 0\n"
                ),
            ),
        ),
        ("networks/test_closed_forms.py::test_a_records_bits_are_its_own",),
    ),
)
PRIVATE_LOSS = ("methods/test_feddat.py::test_private_step_follows_the_slopes_of_both_losses",)
BOTH_STEPS = ("methods/test_feddat.py::test_both_steps_of_a_batch_follow_their_slopes",)
DISTILLATION = (
    PlantedFault(
        "FedDAT's temperature is not squared",
        "The pull of private FedDAT's losses is α·T in place of α·T².",
        "methods.training.feddat:AdapterUpdate._program",
        (("self.settings.temperature**2", "self.settings.temperature"),),
        PRIVATE_LOSS,
    ),
    PlantedFault(
        "FedDAT's teacher is not detached",
        "Private FedDAT's teacher learns from the loss of its student, too.",
        "secagg.networks.distillation:Distilling.loss",
        (("self.divergence(z_t.detach(), z_s)", "self.divergence(z_t, z_s)"),),
        PRIVATE_LOSS,
    ),
    PlantedFault(
        "FedDAT's student is not detached",
        "Private FedDAT's shared adapter learns from the loss of its teacher, too.",
        "secagg.networks.distillation:Distilling.loss",
        (("self.divergence(z_s.detach(), z_t)", "self.divergence(z_s, z_t)"),),
        PRIVATE_LOSS,
    ),
    PlantedFault(
        "FedDAT's divergence is turned round",
        "The divergence is KL(learning ‖ teaching), as the paper prints it.",
        "secagg.networks.distillation:Distilling.divergence",
        (("for z in (learning, teaching)", "for z in (teaching, learning)"),),
        PRIVATE_LOSS,
    ),
    PlantedFault(
        "FedDAT's ramp at the round's end",
        "Private FedDAT takes α of the end of the round in place of its middle.",
        "methods.training.feddat:AdapterUpdate.train_privately",
        (("alpha(0.5, number, self.rounds)", "alpha(1.0, number, self.rounds)"),),
        PRIVATE_LOSS,
    ),
    PlantedFault(
        "FedDAT's teacher learns after the student's step",
        "The teacher learns from the student as it is after its step.",
        "secagg.networks.distillation:losses_of",
        (("program.divergence(learnt, z)", "program.divergence(program.student(leaves, x).detach(), z)"),),
        BOTH_STEPS,
    ),
    PlantedFault(
        "FedDAT's two steps are exchanged",
        "The teacher steps first, and the student learns from the teacher as it was.",
        "secagg.networks.distillation:losses_of",
        (
            (
                "    z = program.student(leaves, x)\n    yield",
                (
                    "    learnt, z = program.student(leaves, x).detach(), program.teacher(leaves, x)\n"
                    "    yield cross_entropy(z, labels) + pull * program.divergence(learnt, z)\n"
                    "    z = program.student(leaves, x)\n    yield"
                ),
            ),
            (
                (
                    "    learnt, z = z.detach(), program.teacher(leaves, x)\n"
                    "    yield cross_entropy(z, labels) + pull * program.divergence(learnt, z)\n"
                ),
                "",
            ),
        ),
        BOTH_STEPS,
    ),
)
LENGTHS = ("methods/test_declaration.py::test_concepts_of_every_class_and_domain_are_inside_their_lengths",)
CONCEPTS = (
    PlantedFault(
        "FedBiP's presences longer than accounted",
        "A presence is R_q over ⌊√rows⌋, so that those of two or three classes are longer than R_q.",
        "methods.slots.fedbip:ConceptSums._one",
        (("self.levels // (math.isqrt(rows - 1) + 1)", "self.levels // max(1, math.isqrt(rows))"),),
        LENGTHS,
    ),
    PlantedFault(
        "FedBiP's presences rounded up",
        "A presence is the rounded R_q/√rows, so that all of them may be a little longer than R_q.",
        "methods.slots.fedbip:ConceptSums._one",
        (("self.levels // (math.isqrt(rows - 1) + 1)", "math.ceil(self.levels / math.sqrt(rows))"),),
        LENGTHS,
    ),
    PlantedFault(
        "FedBiP's movements clipped row by row",
        "Each class's movement is clipped by itself, so that all of them are √rows times as long as accounted.",
        "methods.slots.fedbip:ConceptSums._encode",
        (("moved.reshape(1, -1)", "moved"),),
        LENGTHS,
    ),
)
PROMPTS = "generation/test_prompts.py::"
TOLD = (
    PlantedFault(
        "zeros for the empty prompt",
        "The unconditional half of guidance is zeros, which no text encoder gives.",
        "secagg.generation.concepts:tell_nothing",
        (('latents.text.encode("").expand', '(0 * latents.text.encode("")).expand'),),
        (PROMPTS + "test_nothing_is_the_empty_prompt", PROMPTS + "test_denoising_is_the_pipeline_s"),
    ),
    PlantedFault(
        "S and V in each other's place",
        "The class's vector stands where the prompt has the style.",
        "secagg.generation.concepts:tell",
        (("[of_domain, of_class]", "[of_class, of_domain]"),),
        (PROMPTS + "test_words_in_their_places_are_the_pipeline_s_prompt",),
    ),
    PlantedFault(
        "vectors after the text encoder",
        "The vectors overwrite rows of the encoder's output, and no later token is told of them.",
        "secagg.features.latents:TextEncoder.encode_vectors",
        (("self.encoder.get_input_embeddings()", "self.encoder.final_layer_norm"),),
        (PROMPTS + "test_any_vectors_are_the_pipeline_s_textual_inversion",),
    ),
    PlantedFault(
        "noise of the sampler's first step",
        "The start has the noise of the first step that the sampler takes, not of the last that training took.",
        "secagg.generation.pictures:denoise",
        (("torch.tensor([scheduler.config.num_train_timesteps - 1])", "times[:1]"),),
        (PROMPTS + "test_the_start_is_noised_by_all_steps",),
    ),
    PlantedFault(
        "uniform gamma",
        "Interpolations are anywhere between two means, not near their middle.",
        "secagg.generation.pictures:interpolate",
        (("rng.normal(*GAMMA, size=(count, 1)).clip(0, 1)", "rng.uniform(size=(count, 1))"),),
        ("generation/test_pictures.py::test_gamma_is_normal_and_clipped",),
    ),
    PlantedFault(
        "latents clipped like pixels",
        "The sampler cuts what it believes the latent to be to [−1, 1].",
        "secagg.features.latents:DiffusionFiles.load_scheduler",
        (("clip_sample=False", "clip_sample=True"),),
        (PROMPTS + "test_denoising_is_the_pipeline_s",),
    ),
)
EXACT = ("methods/test_projected_sums.py::test_products_are_exact_in_any_order",)
INTEGERS = (
    PlantedFault(
        "integers of a projection too wide",
        "W has four bits more than sums of its products can have: float64 may round them by the order of addition.",
        "methods.own_models.projected_sums:project_records",
        (("bits = EXACT_BITS - 1 - math.frexp", "bits = EXACT_BITS + 3 - math.frexp"),),
        EXACT,
    ),
    PlantedFault(
        "records' length left out of the width",
        "W is as wide as if every record had length 1.",
        "methods.own_models.projected_sums:project_records",
        ((" - int(levels).bit_length()", ""),),
        EXACT,
    ),
    PlantedFault(
        "projection not rounded to integers",
        "W keeps its fractions, so that products are no integers.",
        "methods.own_models.projected_sums:project_records",
        (("np.rint(np.ldexp(weight, bits))", "np.ldexp(weight, bits)"),),
        EXACT,
    ),
)
ENTRIES = (
    *DISTILLATION,
    *BATCHES,
    *BATCHES_OF_METHODS,
    *MOMENTS,
    *RECORDS,
    *NUMBERS,
    *PROJECTIONS,
    *CONCEPTS,
    *TOLD,
    *INTEGERS,
)
