"""Faults in what parties, readers of records and experiments state and refuse."""

from tests.mutations.planting import PlantedFault

RESULTS = "parties/test_two_results.py"
LINKS = "federation/test_links.py"
LIES = "parties/test_lies_after_crashes.py"
BOUNDS = "parties/test_sum_bounds.py"
SCORES = "cli/test_scores.py"
ONE_RECORD = "parties/test_one_record.py"
FAILING = "models/test_failing_records.py"
BREAKS = "data/test_line_breaks.py"
STEPS = "federation/test_extended_steps.py"
DEADLINE = "parties/test_deadline.py"
SETTLEMENT = "federation/test_settlement.py"
SUMMARY = "experiments/test_summary.py"
SIMULATION = "experiments/test_simulation.py"
KINDS = "methods/test_kinds.py"

ENTRIES = (
    PlantedFault(
        "two results with one sum",
        "Two signed results contradict each other only where their sums differ.",
        "secagg.parties.links:_conflict_between",
        (("or told == there:", "or told.aggregate_sha256 == there.aggregate_sha256:"),),
        (f"{RESULTS}::test_two_results_of_one_session_name_the_server",),
    ),
    PlantedFault(
        "two rounds are one",
        "A member that missed two rounds is told of the last of them alone.",
        "secagg.parties.links:Series._gap",
        (("is_one, signers = last + 2 == one.number", "is_one, signers = last + 3 >= one.number"),),
        (LINKS, "federation/test_cohorts.py"),
    ),
    PlantedFault(
        "acknowledged before checked",
        "A member writes its acknowledgement down before it has checked what the outcome names.",
        "secagg.parties.member_session:MemberSession.run",
        (
            (
                "                await self._complete(server, outcome)\n"
                "                self._transcript.sent(self._transcript.sign(acknowledgement_of(self._setup, outcome)))\n",
                "                self._transcript.sent(self._transcript.sign(acknowledgement_of(self._setup, outcome)))\n"
                "                await self._complete(server, outcome)\n",
            ),
        ),
        (LIES,),
    ),
    PlantedFault(
        "outcome of an earlier life is true",
        "An outcome that an earlier life wrote down is not checked.",
        "secagg.parties.member_session:MemberSession._checked",
        (("        state.advance(self._context, self._me, outcome)\n", ""),),
        (f"{LIES}::test_lie_is_refused_in_the_next_life",),
    ),
    PlantedFault(
        "bounds of all clients",
        "An opened sum is held against what all clients of the plan can add up to.",
        "secagg.parties.outcome:conclude",
        (("broken_bounds(setup, len(members), blocks)", "broken_bounds(setup, len(setup.context.clients), blocks)"),),
        (BOUNDS,),
    ),
    PlantedFault(
        "bounds without the multiplier",
        "An opened count is held against a bound without the block's multiplier.",
        "secagg.parties.sum_bounds:broken_bounds",
        (("block.multiplier * clients *", "clients *"),),
        (f"{BOUNDS}::test_liar_in_the_counts_is_refused",),
    ),
    PlantedFault(
        "bounds of one round",
        "False alarms of a plan's rounds add up beyond what is stated.",
        "secagg.parties.sum_bounds:broken_bounds",
        (("2 * len(setup.layout.blocks) * setup.rounds", "2 * len(setup.layout.blocks)"),),
        (BOUNDS,),
    ),
    PlantedFault(
        "positive by the order of letters",
        "The second class is the positive one, whichever the schema declares.",
        "secagg.scoring.metrics:Metrics.of",
        (("by_class[list(classes).index(positive)]", "by_class[-1]"),),
        ("scoring/test_metrics.py::test_the_declared_class_is_positive_whatever_the_order_of_names",),
    ),
    PlantedFault(
        "curve of the other class",
        "The page's curve is that of the class that is not positive.",
        "secagg.cli.scores_page",
        (("if scored.classes[each[1]] == scored.positive", "if scored.classes[each[1]] != scored.positive"),),
        (SCORES,),
    ),
    PlantedFault(
        "positive of three classes",
        "A schema of three classes may declare a positive one.",
        "secagg.data.schema:Schema._refuse_odd_rules",
        (("self.positive not in self.classes or len(self.classes) != 2", "self.positive not in self.classes"),),
        ("data/test_own_tables.py", "cli/test_schema_command.py"),
    ),
    PlantedFault(
        "skipped rows have labels",
        "Rows that were skipped count among those with a label.",
        "secagg.scoring.predictor:Predictions.known",
        (("self.records.labels >= 0", "self.records.labels != UNLABELLED"),),
        (f"{SCORES}::test_bad_rows_can_be_skipped_and_are_reported",),
    ),
    PlantedFault(
        "index for a row",
        "The first skipped row is named by its index, not by its number in the file.",
        "secagg.cli.predict:_first_skipped",
        (("found.records.origin.row[index]", "index"),),
        (f"{SCORES}::test_bad_rows_can_be_skipped_and_are_reported",),
    ),
    PlantedFault(
        "long lines are several",
        "The rest of a line beyond the limit is read as further lines.",
        "secagg.data.delimited:_text_of",
        (
            (
                "while (rest := text.readline(longest)) and not rest.endswith(ENDS):\n                        pass",
                "text.readline(longest)",
            ),
        ),
        (f"{ONE_RECORD}::test_a_line_of_a_table",),
    ),
    PlantedFault(
        "one record fewer than planned",
        "A source that holds as many records as the plan allows is refused.",
        "secagg.data.faults:Tolerance.refuse_more",
        (("count > self.most", "count >= self.most"),),
        (ONE_RECORD,),
    ),
    PlantedFault(
        "what fails is zero",
        "A record on which the backbone fails has features of zero, and takes part.",
        "secagg.parties.contribution:_features_of",
        (("np.nan)", "0.0)"),),
        (f"{ONE_RECORD}::test_a_backbone_that_fails_on_a_record",),
    ),
    PlantedFault(
        "gradients of a failed batch stay",
        "What a program added before it failed on a batch is added to what its records give.",
        "secagg.models.training:_add_batch",
        (("            leaves[name].grad.copy_(grad)", "            pass"),),
        (FAILING,),
    ),
    PlantedFault(
        "gradient of a failed record stays",
        "What a program added before it failed on a record is that record's gradient.",
        "secagg.models.training:record_gradients",
        (
            (
                "tolerant=tolerant)\n                    gradient.zero_()\n",
                "tolerant=tolerant)\n",
            ),
        ),
        (FAILING,),
    ),
    PlantedFault(
        "members without tolerance",
        "A member whose program fails on a record under noise does not take part.",
        "methods.local_work:MemberUpdate.moved",
        (("tolerant=local.has_noise", "tolerant=False"),),
        (FAILING, ONE_RECORD),
    ),
    PlantedFault(
        "row before the line break",
        "The owner reads the number of the row before the torn one.",
        "secagg.data.delimited:line_breaks_in",
        (("row {torn[0][0] + 1}", "row {torn[0][0]}"),),
        (BREAKS, "cli/test_schema_command.py::test_line_breaks_are_named_and_mended"),
    ),
    PlantedFault(
        "last line of a torn record stays apart",
        "The last line break of a cell stays where it was.",
        "secagg.data.delimited:write_without_line_breaks",
        (
            ("for line in text[start : end - 1]", "for line in text[start : end - 2]"),
            ("text[start : end - 1] =", "text[start : end - 2] ="),
        ),
        (f"{BREAKS}::test_a_rewritten_table_reads_as_csv_reads_the_first",),
    ),
    PlantedFault(
        "time once more from its end",
        "An extended step gets its time from when it should have closed.",
        "secagg.parties.deadline:Deadline.extend",
        (("self._looked + self._seconds", "self._closes + self._seconds"),),
        (DEADLINE,),
    ),
    PlantedFault(
        "every restart was extended",
        "A step of an earlier life counts as extended.",
        "secagg.parties.deadline:read_closing",
        (('rest == ["1"]', "bool(rest)"),),
        (DEADLINE,),
    ),
    PlantedFault(
        "extended for those who answered",
        "A step is extended where any member is connected, also one that owes nothing.",
        "secagg.parties.server_session:ServerSession._extend",
        (("if not late or not self._protocol.is_short", "if not self._protocol.is_short"),),
        (f"{STEPS}::test_nobody_who_is_away_is_waited_for",),
    ),
    PlantedFault(
        "rounds as long as without extensions",
        "A party waits for a round as if no step were extended.",
        "secagg.parties.setup:SessionSetup.longest_round",
        (("return 2.0 * (", "return 1.0 * ("),),
        ("parties/test_deadline.py", STEPS),
    ),
    PlantedFault(
        "settled for the whole plan",
        "An abort states the cost of the whole plan where the ledger was settled, and the other way round.",
        "secagg.federation.client:FederationClient._with_cost",
        (("if is_settled else", "if not is_settled else"),),
        (SETTLEMENT, "federation/test_rounds.py::test_too_few_for_the_next_round_end_the_plan"),
    ),
    PlantedFault(
        "cost of another plan",
        "An abort states the ledger's last row, of whatever plan.",
        "secagg.federation.client:FederationClient._with_cost",
        ((" if entry.release.plan == self.setup.plan.digest]", "]"),),
        (SETTLEMENT, "federation/test_rounds.py::test_too_few_for_the_next_round_end_the_plan"),
    ),
    PlantedFault(
        "limits are not checked",
        "Kits are written with limits that refuse their plan.",
        "secagg.cli.pki",
        (("SessionSetup.of(agreed, roster).check(policy)", "policy.require_method(agreed.method)"),),
        ("cli/test_join_command.py::test_limits_that_refuse_the_plan_make_no_kits",),
    ),
    PlantedFault(
        "pipelines of baselines",
        "The note on two pipelines counts baselines, which have no plan.",
        "secagg.experiments.tables:pipeline_notes",
        (("if run.result and not is_baseline(run.result)]", "if run.result]"),),
        (SUMMARY, "experiments/test_comparison.py::test_two_pipelines_are_said_in_every_output"),
    ),
    PlantedFault(
        "normalisation that was asked for",
        "The note on two pipelines counts normalisations that somebody chose.",
        "secagg.experiments.tables:pipeline_notes",
        (('if run.settings.get("normalise") is None and run.result:', "if run.result:"),),
        (SUMMARY, "experiments/test_comparison.py::test_two_pipelines_are_said_in_every_output"),
    ),
    PlantedFault(
        "diverged with every seed",
        "A cell says that training diverged only where it did with every seed.",
        "secagg.experiments.tables:_cell_text",
        (("[DIVERGED] if any(", "[DIVERGED] if all("),),
        (f"{SUMMARY}::test_diverged_training_is_marked",),
    ),
    PlantedFault(
        "no number is no divergence",
        "A model whose scores are no numbers is not called diverged.",
        "secagg.experiments.remarks:_of_divergence",
        (("if loss < blind:", "if not loss >= blind:"),),
        (f"{SIMULATION}::test_diverged_training_is_said",),
    ),
    PlantedFault(
        "folders on a head's word",
        "On a head's word a model's folder is opened.",
        "secagg.features.opening:needs_files",
        (("part.endswith(SUFFIX) or part.startswith(FOLDERS)", "part.endswith(SUFFIX)"),),
        ("parties/test_pipeline.py::test_nothing_is_fetched_or_run_on_a_heads_word",),
    ),
    PlantedFault(
        "first part of a backbone",
        "On a head's word the second part of a backbone is opened.",
        "secagg.features.opening:needs_files",
        (('in spec.split("+"))', 'in spec.split("+")[:1])'),),
        ("parties/test_pipeline.py::test_nothing_is_fetched_or_run_on_a_heads_word",),
    ),
    PlantedFault(
        "delta of unstated records",
        "A δ is not doubted where nobody states how many records there are.",
        "secagg.parties.explanation:_doubts_of_delta",
        (("plan.at_least or plan.max_records", "plan.at_least"),),
        ("parties/test_explanation.py::test_delta_that_is_no_small_chance_is_said",),
    ),
    PlantedFault(
        "labels one by one",
        "A statistic that is divided among blocks of another label is not recognised.",
        "methods.declaration:_Trial._check_kinds",
        (("for names in (*([name] for name in unread), unread):", "for names in [[name] for name in unread]:"),),
        (KINDS,),
    ),
    PlantedFault(
        "scales above zero",
        "A statistic under another label is not recognised where its sign is turned.",
        "methods.declaration:_holds",
        (("np.abs(other.T @ one)", "other.T @ one"),),
        (KINDS,),
    ),
)
