"""Faults in what parties, readers of records and experiments state and refuse."""

from tests.mutations.planting import PlantedFault

RESULTS = "session/test_two_results.py"
LINKS = "federation/test_links.py"
LIES = "session/test_lies_after_crashes.py"
BOUNDS = "session/test_sum_bounds.py"
SCORES = "cli/test_scores.py"
ONE_RECORD = "session/test_one_record.py"
FAILING = "networks/test_failing_records.py"
BREAKS = "data/test_line_breaks.py"
STEPS = "federation/test_extended_steps.py"
DEADLINE = "session/test_deadline.py"
SETTLEMENT = "federation/test_settlement.py"
SUMMARY = "experiments/test_summary.py"
SIMULATION = "experiments/test_simulation.py"
KINDS = "methods/test_kinds.py::test_statistic_under_another_label_is_refused_with_its_kind"
MISSED = "federation/test_cohorts.py::test_only_the_rounds_that_a_member_missed_are_said_to_be_missed"
REFUSED = f"{BOUNDS}::test_members_leave_with_a_signed_abort"
IN_THE_SUM = f"{BOUNDS}::test_the_bound_is_that_of_the_clients_in_the_sum"
COUNTS = f"{BOUNDS}::test_liar_in_the_counts_is_refused"
ALARMS = f"{BOUNDS}::test_all_rounds_share_the_false_alarms"
CURVE = f"{SCORES}::test_files_hold_predictions_measures_and_a_page"
CONTRADICTION = "data/test_schema.py::test_contradiction_is_refused"
LINES = f"{ONE_RECORD}::test_a_line_of_a_table"
MOST = f"{ONE_RECORD}::test_as_many_records_as_planned_are_read"
NO_ZERO = f"{ONE_RECORD}::test_a_failing_record_is_no_zero"
TAKEN_BACK = f"{FAILING}::test_what_was_added_before_it_failed_is_taken_back"
TOLERANT = "methods/test_fedavg.py::test_member_with_a_record_that_fails_takes_part_under_noise"
TORN = "cli/test_schema_command.py::test_line_breaks_are_named_and_mended"
EXTENDED = f"{DEADLINE}::test_extended_step_has_its_time_from_now_on"
RESTART = f"{DEADLINE}::test_restart_does_not_begin_the_time_anew"
LONGEST = f"{STEPS}::test_a_round_may_last_as_long_as_all_its_steps_extended"
SETTLED = f"{SETTLEMENT}::test_plan_that_ends_after_an_upload_is_charged_for_it"
UNCHARGED = "federation/test_replay.py::test_member_that_has_not_uploaded_is_charged_nothing"
BY_RULE = f"{SUMMARY}::test_a_table_compares_pipelines_by_rule_alone"
DIVERGED = f"{SIMULATION}::test_diverged_training_is_said"
PLAN_PAGE = "cli/test_plan_page.py"
ANSWERS = f"{PLAN_PAGE}::test_page_answers_the_question"
DOUBTED = "session/test_explanation.py::test_delta_is_doubted_by_what_is_stated_or_one_client_may_have"

ENTRIES = (
    PlantedFault(
        "two results with one sum",
        "Two signed results contradict each other only where their sums differ.",
        "secagg.verification.transcript_series:_conflict_between",
        (("or told == there:", "or told.aggregate_sha256 == there.aggregate_sha256:"),),
        (f"{RESULTS}::test_two_results_of_one_session_name_the_server",),
    ),
    PlantedFault(
        "two rounds are one",
        "A member that missed two rounds is told of the last of them alone.",
        "secagg.verification.transcript_series:TranscriptSeries._gap",
        (("is_one, signers = last + 2 == one.number", "is_one, signers = last + 3 >= one.number"),),
        (MISSED,),
    ),
    PlantedFault(
        "acknowledged before checked",
        "A member writes its acknowledgement down before it has checked what the outcome names.",
        "secagg.session.member_session:MemberSession.run",
        (
            (
                "await self._complete(server, outcome)\n",
                "self._transcript.sent(self._transcript.sign((acknowledgement_of)(self._setup, outcome)))\n",
            ),
            (
                "self._transcript.sent(self._transcript.sign(acknowledgement_of(self._setup, outcome)))",
                "await self._complete(server, outcome)",
            ),
        ),
        (REFUSED,),
    ),
    PlantedFault(
        "outcome of an earlier life is true",
        "An outcome that an earlier life wrote down is not checked.",
        "secagg.session.member_session:MemberSession._checked",
        (("        state.advance(self._context, self._me, outcome)\n", ""),),
        (f"{LIES}::test_lie_is_refused_in_the_next_life",),
    ),
    PlantedFault(
        "bounds of all clients",
        "An opened sum is held against what all clients of the plan can add up to.",
        "secagg.session.outcome:conclude",
        (("broken_bounds(setup, len(members), blocks)", "broken_bounds(setup, len(setup.context.clients), blocks)"),),
        (IN_THE_SUM,),
    ),
    PlantedFault(
        "bounds without the multiplier",
        "An opened count is held against a bound without the block's multiplier.",
        "secagg.session.outcome:broken_bounds",
        (("block.multiplier * clients *", "clients *"),),
        (COUNTS,),
    ),
    PlantedFault(
        "bounds of one round",
        "False alarms of a plan's rounds add up beyond what is stated.",
        "secagg.session.outcome:broken_bounds",
        (("2 * len(setup.sum.layout.blocks) * setup.rounds", "2 * len(setup.sum.layout.blocks)"),),
        (ALARMS,),
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
        "secagg.cli.page",
        (("if scored.classes[each[1]] == scored.positive", "if scored.classes[each[1]] != scored.positive"),),
        (CURVE,),
    ),
    PlantedFault(
        "positive of three classes",
        "A schema of three classes may declare a positive one.",
        "secagg.agreement.schema:Schema._refuse_odd_rules",
        (("self.positive not in self.classes or len(self.classes) != 2", "self.positive not in self.classes"),),
        (CONTRADICTION,),
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
        "secagg.cli.predict:predict",
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
        (LINES,),
    ),
    PlantedFault(
        "one record fewer than planned",
        "A source that holds as many records as the plan allows is refused.",
        "secagg.data.records:Tolerance.refuse_more",
        (("count > self.most", "count >= self.most"),),
        (MOST,),
    ),
    PlantedFault(
        "what fails is zero",
        "A record on which the backbone fails has features of zero, and takes part.",
        "secagg.features.local_records:_features_of",
        (("np.nan)", "0.0)"),),
        (NO_ZERO,),
    ),
    PlantedFault(
        "gradients of a failed batch stay",
        "What a program added before it failed on a batch is added to what its records give.",
        "secagg.networks.training:_add_batch",
        (("            leaves[name].grad.copy_(grad)", "            pass"),),
        (TAKEN_BACK,),
    ),
    PlantedFault(
        "gradient of a failed record stays",
        "What a program added before it failed on a record is that record's gradient.",
        "secagg.networks.training:_Backward.fill",
        (
            (
                "tolerant=self.tolerant)\n                self.gradient.zero_()\n",
                "tolerant=self.tolerant)\n",
            ),
        ),
        (TAKEN_BACK,),
    ),
    PlantedFault(
        "members without tolerance",
        "A member whose program fails on a record under noise does not take part.",
        "methods.training.client_update:ProgramUpdate.train",
        (("tolerant=local.has_noise", "tolerant=False"),),
        (TOLERANT,),
    ),
    PlantedFault(
        "row before the line break",
        "The owner reads the number of the row before the torn one.",
        "secagg.data.delimited:line_breaks_in",
        (("row {torn[0][0] + 1}", "row {torn[0][0]}"),),
        (TORN,),
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
        "secagg.session.deadline:Deadline.extend",
        (("self._looked + self._seconds", "self._closes + self._seconds"),),
        (EXTENDED,),
    ),
    PlantedFault(
        "every restart was extended",
        "A step of an earlier life counts as extended.",
        "secagg.session.deadline:read_closing",
        (('is_extended == "1"', "bool(rest)"),),
        (RESTART,),
    ),
    PlantedFault(
        "extended for those who answered",
        "A step is extended where any member is connected, also one that owes nothing.",
        "secagg.session.server_session:ServerSession._extend",
        (("if not late or not self._protocol.is_short", "if not self._protocol.is_short"),),
        (f"{STEPS}::test_nobody_who_is_away_is_waited_for",),
    ),
    PlantedFault(
        "rounds as long as without extensions",
        "A party waits for a round as if no step were extended.",
        "secagg.plan_facts.facts:longest_round",
        (("return 2.0 * (", "return 1.0 * ("),),
        (LONGEST,),
    ),
    PlantedFault(
        "settled for the whole plan",
        "An abort states the cost of the whole plan where the ledger was settled, and the other way round.",
        "secagg.federation.client:FederationClient._with_cost",
        (("if is_settled else", "if not is_settled else"),),
        (SETTLED,),
    ),
    PlantedFault(
        "cost of another plan",
        "An abort states the ledger's last row, of whatever plan.",
        "secagg.federation.client:FederationClient._with_cost",
        ((" if entry.release.plan == self.setup.plan.digest]", "]"),),
        (UNCHARGED,),
    ),
    PlantedFault(
        "limits are not checked",
        "Kits are written with limits that refuse their plan.",
        "secagg.cli.pki",
        (("RoundSetup.of(agreed, roster).facts.check(policy)", "policy.require_method(agreed.method)"),),
        ("cli/test_join_command.py::test_limits_that_refuse_the_plan_make_no_kits",),
    ),
    PlantedFault(
        "pipelines of baselines",
        "The note on two pipelines counts baselines, which have no plan.",
        "secagg.experiments.tables:pipeline_notes",
        (("if run.result and not is_baseline(run.result)]", "if run.result]"),),
        (BY_RULE,),
    ),
    PlantedFault(
        "normalisation that was asked for",
        "The note on two pipelines counts normalisations that somebody chose.",
        "secagg.experiments.tables:pipeline_notes",
        (('if run.settings.get("normalise") is None and run.result:', "if run.result:"),),
        (BY_RULE,),
    ),
    PlantedFault(
        "diverged with every seed",
        "A cell says that training diverged only where it did with every seed.",
        "secagg.experiments.results:Group.diverged",
        (("return any(", "return all("),),
        (f"{SUMMARY}::test_diverged_training_is_marked",),
    ),
    PlantedFault(
        "no number is no divergence",
        "A model whose scores are no numbers is not called diverged.",
        "secagg.experiments.simulation:_of_divergence",
        (("if loss < blind or", "if not loss >= blind or"),),
        (DIVERGED,),
    ),
    PlantedFault(
        "folders on a head's word",
        "On a head's word a model's folder is opened.",
        "secagg.features.opening:needs_files",
        (("part.endswith(SUFFIX) or part.startswith(FOLDERS)", "part.endswith(SUFFIX)"),),
        ("session/test_pipeline.py::test_nothing_is_fetched_or_run_on_a_heads_word",),
    ),
    PlantedFault(
        "first part of a backbone",
        "On a head's word the second part of a backbone is opened.",
        "secagg.features.opening:needs_files",
        (('in spec.split("+"))', 'in spec.split("+")[:1])'),),
        ("session/test_pipeline.py::test_nothing_is_fetched_or_run_on_a_heads_word",),
    ),
    PlantedFault(
        "delta of unstated records",
        "A δ is not doubted where nobody states how many records there are.",
        "secagg.plan_facts.explanation:doubts_of",
        (("plan.at_least or plan.max_records", "plan.at_least"),),
        (DOUBTED,),
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
    PlantedFault(
        "missed since the last that was seen",
        "A member is told that it missed the last round that it saw.",
        "secagg.verification.transcript_series:TranscriptSeries._gap",
        (("rounds {last + 1} to", "rounds {last} to"),),
        (MISSED,),
    ),
    PlantedFault(
        "impossible sums are acknowledged",
        "A member takes a sum that no honest clients can reach.",
        "secagg.session.member_session:MemberSession._complete",
        (("        require_possible(files.own)\n", ""),),
        (REFUSED,),
    ),
    PlantedFault(
        "bounds of one client fewer",
        "An honest sum at its bound is refused.",
        "secagg.session.outcome:conclude",
        (("broken_bounds(setup, len(members), blocks)", "broken_bounds(setup, len(members) - 1, blocks)"),),
        (IN_THE_SUM,),
    ),
    PlantedFault(
        "bounds of one record",
        "An opened count is held against one record of each client.",
        "secagg.session.outcome:broken_bounds",
        (("block.multiplier * clients * setup.sum.capacity.records", "block.multiplier * clients"),),
        (COUNTS,),
    ),
    PlantedFault(
        "bounds of one test of two",
        "False alarms of both tests of a block add up beyond what is stated.",
        "secagg.session.outcome:broken_bounds",
        (("2 * len(setup.sum.layout.blocks)", "len(setup.sum.layout.blocks)"),),
        (ALARMS,),
    ),
    PlantedFault(
        "curves where no class is positive",
        "The page shows the curves of all classes where one is positive.",
        "secagg.cli.page:_roc",
        (("if scored.positive is not None:", "if scored.positive is None:"),),
        (CURVE,),
    ),
    PlantedFault(
        "positive class that there is not",
        "A schema may declare a positive class that is none of its two.",
        "secagg.agreement.schema:Schema._refuse_odd_rules",
        (("(self.positive not in self.classes or len(self.classes) != 2)", "len(self.classes) != 2"),),
        (CONTRADICTION,),
    ),
    PlantedFault(
        "long lines in pieces",
        "A line beyond the limit is read in pieces, each as a record.",
        "secagg.data.delimited:_text_of",
        (("if len(line) == longest and", "if len(line) > longest and"),),
        (LINES,),
    ),
    PlantedFault(
        "one record more than planned",
        "A source may hold one record more than the plan allows.",
        "secagg.data.records:Tolerance.refuse_more",
        (("count > self.most", "count > self.most + 1"),),
        (MOST,),
    ),
    PlantedFault(
        "what fails is one",
        "A record on which the backbone fails has features of one, and takes part.",
        "secagg.features.local_records:_features_of",
        (("np.nan)", "1.0)"),),
        (NO_ZERO,),
    ),
    PlantedFault(
        "nothing is remembered of a failing batch",
        "What a program added before it failed is taken back only where that is refused anyhow.",
        "secagg.networks.training:_add_batch",
        (("if tolerant and leaf.grad", "if not tolerant and leaf.grad"),),
        (TAKEN_BACK,),
    ),
    PlantedFault(
        "gradients without tolerance",
        "A member that sends gradients does not take part with a record that fails under noise.",
        "methods.training.client_update:RecordGradients.contribute",
        (("tolerant=local.has_noise", "tolerant=False"),),
        (TOLERANT,),
    ),
    PlantedFault(
        "no restart was extended",
        "A step may be extended once in each life of its party.",
        "secagg.session.deadline:read_closing",
        (('is_extended == "1"', "False"),),
        (f"{DEADLINE}::test_step_is_extended_once",),
    ),
    PlantedFault(
        "rounds of one step",
        "A party waits for a round as if it had one step.",
        "secagg.plan_facts.facts:longest_round",
        (("_MOST_STEPS * plan.step_seconds", "plan.step_seconds"),),
        (LONGEST,),
    ),
    PlantedFault(
        "cost before it was settled",
        "An abort states what the ledger held before it was settled.",
        "secagg.federation.client:FederationClient._with_cost",
        (("format_epsilon(rows[-1].epsilon)", "format_epsilon(rows[0].epsilon)"),),
        (SETTLED,),
    ),
    PlantedFault(
        "two pipelines that are one",
        "A table says that normalisations differ where they are the same.",
        "secagg.experiments.tables:pipeline_notes",
        (("if noisy and exact and noisy != exact:", "if noisy and exact:"),),
        (f"{SUMMARY}::test_a_table_says_where_normalisation_differs",),
    ),
    PlantedFault(
        "a loss that is no number is let pass",
        "Training whose loss is no number did not diverge.",
        "secagg.experiments.simulation:_of_divergence",
        (("if loss < blind or", "if loss < blind or math.isnan(loss) or"),),
        (DIVERGED,),
    ),
    PlantedFault(
        "delta of the larger number",
        "A δ is doubted by one client's most records though fewer of all are stated.",
        "secagg.plan_facts.explanation:doubts_of",
        (("plan.at_least or plan.max_records", "max(plan.at_least, plan.max_records)"),),
        (DOUBTED,),
    ),
    PlantedFault(
        "odds rounded down",
        "The page of a plan rounds down how much surer somebody can become.",
        "secagg.plan_facts.plan_page:times_as_sure",
        (("math.ceil(factor):", "math.floor(factor):"),),
        (f"{PLAN_PAGE}::test_strength_in_words",),
    ),
    PlantedFault(
        "as many honest members as before",
        "The page of a plan says of one honest member fewer what holds for all that it counts on.",
        "secagg.plan_facts.plan_page:_honest",
        (("honest=first.fewest - 1", "honest=first.fewest"),),
        (ANSWERS,),
    ),
    PlantedFault(
        "two honest members are no danger",
        "The page of a plan leaves out that of two honest members each can compute the other's numbers.",
        "secagg.plan_facts.plan_page:_trust",
        (("facts.plan.colluders <= 2", "facts.plan.colluders < 2"),),
        (ANSWERS,),
    ),
    PlantedFault(
        "plan without a purpose",
        "A plan that states no purpose is written.",
        "secagg.cli.plan:new",
        (("if not choices.purpose.strip():", "if choices.purpose is None:"),),
        (f"{PLAN_PAGE}::test_plan_without_a_purpose_is_not_written",),
    ),
    PlantedFault(
        "server that adds the noise is protected from",
        "The page of a plan promises something against the server that sees the exact totals.",
        "secagg.plan_facts.plan_page:_against",
        (("if len(openers) > 1 else f", "if openers else f"),),
        (f"{PLAN_PAGE}::test_page_of_another_plan",),
    ),
)
