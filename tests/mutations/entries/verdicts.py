"""Faults in what audits say: noise of the session, waivers, unread blocks, second opinions, and older reports."""

from tests.mutations.planting import PlantedFault

SESSION_NOISE = "threat_models/evidence/test_session_noise.py"
GATE = "threat_models/report/test_gate.py"
WAIVERS = "threat_models/report/test_waivers.py"
PAGE = "threat_models/report/test_first_page.py"
CHANGES = "threat_models/report/test_changes.py"
UNREAD = "threat_models/attacks/test_unread.py"
OPINION = "threat_models/estimation/test_recomputation.py"
ALL_SESSIONS = f"{SESSION_NOISE}::test_the_worst_of_several_sessions_decides"
ROUNDING = f"{SESSION_NOISE}::test_rounding_is_bounded_for_all_that_may_be_summed"
GRADIENTS = f"{SESSION_NOISE}::test_gradients_show_their_noise_whatever_the_records"
SHARED = "threat_models/estimation/test_chi_square.py::test_all_parts_of_all_sessions_share_the_false_alarms"
ALL_ROUNDS = "threat_models/evidence/test_transcripts.py::test_noise_is_that_of_all_rounds"
IN_FORCE = f"{WAIVERS}::test_first_page_of_every_report_names_the_waivers_in_force"
BY_WAIVER = f"{WAIVERS}::test_only_a_gate_that_needs_a_waiver_passes_by_it"
OF_CONTROL = f"{PAGE}::test_state_is_no_better_than_a_gate_that_could_not_tell_of_the_control"
EARLIER = f"{UNREAD}::test_blocks_of_other_sums_withhold_the_best_test"
ANY_SESSION = f"{UNREAD}::test_unread_blocks_of_any_session_leave_verdicts_open"

ENTRIES = (
    PlantedFault(
        "noise of the best session",
        "Of several sessions the one whose noise is not too small decides.",
        "threat_models.evidence.session_noise:noise_of_sessions",
        (("(not each.is_short, each.low", "(each.is_short, each.low"),),
        (ALL_SESSIONS,),
    ),
    PlantedFault(
        "sessions do not share false alarms",
        "Each of several sessions may be called short as often as one alone.",
        "threat_models.estimation.chi_square:measure_variance",
        (("SHORT_LEVEL / sessions", "SHORT_LEVEL"),),
        (SHARED,),
    ),
    PlantedFault(
        "records of one member",
        "Rounding is bounded as if one member alone had records.",
        "threat_models.evidence.session_noise:_most_records",
        (("session.plan.max_records * len(session.members)", "session.plan.max_records"),),
        (ROUNDING,),
    ),
    PlantedFault(
        "thirty percent too small is enough",
        "Noise counts as enough whose σ is 30 % too small.",
        "threat_models.estimation.chi_square",
        (("0.8**2", "0.7**2"),),
        (f"{SESSION_NOISE}::test_noise_twenty_percent_too_small_is_never_enough",),
    ),
    PlantedFault(
        "enough by the ratio",
        "Noise is enough where its measured variance is, whatever the lower limit.",
        "threat_models.estimation.chi_square:SessionNoise.is_enough",
        (("<= self.low <= 1", "<= self.ratio and self.low <= 1"),),
        (GATE + "::test_noise_of_the_session_is_judged_by_its_limits",),
    ),
    PlantedFault(
        "zero sums of centred records alone",
        "Sums that are zero for all records are left out where records are not centred.",
        "threat_models.evidence.blocks:noisy_sum_of",
        (("if is_centred or not rule.centred:", "if is_centred:"),),
        (GRADIENTS,),
    ),
    PlantedFault(
        "zero sums of the last round alone",
        "Of a plan's transcripts the noise of the attacked round alone is measured.",
        "threat_models.evidence.transcripts:of_plans",
        (("for noisy in numbered[number].noisy_sums", "for noisy in main.noisy_sums if number == main.number"),),
        (ALL_ROUNDS,),
    ),
    PlantedFault(
        "short noise of lax gates",
        "Noise that is too small fails only where the gate asks for measured noise.",
        "threat_models.report.gate_evaluation:_judge_promise",
        (("if noise is not None and noise.is_short:", "if gate.measured and noise is not None and noise.is_short:"),),
        (f"{GATE}::test_noise_of_the_session_is_judged_by_its_limits",),
    ),
    PlantedFault(
        "waivers end a day early",
        "A waiver lets nothing pass on its last day any more.",
        "threat_models.report.gate_evaluation:_waive",
        (("today <= waiver.expires", "today < waiver.expires"),),
        (GATE + "::test_waiver_counts_up_to_its_day",),
    ),
    PlantedFault(
        "waivers in force end a day early",
        "The page does not name a waiver on its last day.",
        "threat_models.report.gate_evaluation:judge",
        (("if today <= waiver.expires)", "if today < waiver.expires)"),),
        (IN_FORCE,),
    ),
    PlantedFault(
        "by waiver wherever there is one",
        "A gate that passes by itself is said to pass by waiver, because one is in force.",
        "threat_models.report.first_page:verdict_in_words",
        (("any(each.waived for each in report.gate.waivers)", "bool(report.gate.waivers)"),),
        (BY_WAIVER,),
    ),
    PlantedFault(
        "void waivers count as used",
        "A waiver that has no effect is said to let a failure pass.",
        "threat_models.report.gate_evaluation:_count_waived",
        (("waived=len(own) - void", "waived=len(own)"),),
        (f"{WAIVERS}::test_less_noise_than_promised_is_not_waived",),
    ),
    PlantedFault(
        "waived doubts do not count",
        "What could not be told and was waived leaves the page green.",
        "threat_models.report.content:AuditReport.counts",
        (("any(line.waiver or line.outcome is not", "any(line.outcome is not"),),
        (f"{WAIVERS}::test_what_could_not_be_told_stays_so_under_a_waiver",),
    ),
    PlantedFault(
        "page follows failing gates alone",
        "A gate that could not tell leaves the page as good as its findings.",
        "threat_models.report.content:AuditReport.state",
        (
            (
                "if self.gate is not None and self.gate.outcome is not GateOutcome.PASS:",
                "if self.gate is not None and self.gate.outcome is GateOutcome.FAIL:",
            ),
        ),
        (OF_CONTROL,),
    ),
    PlantedFault(
        "first rule decides what is required",
        "Of several rules for an attack the first alone says whether it must tell.",
        "threat_models.report.gate_evaluation:_judge_finding",
        (("any(rule.required for rule in rules)", "rules[0].required"),),
        (f"{PAGE}::test_one_rule_that_requires_an_attack_is_enough",),
    ),
    PlantedFault(
        "success without requirement",
        "An attack that need not tell may also succeed.",
        "threat_models.report.gate_evaluation:_judge_verdict",
        (
            (
                "(finding.verdict is Verdict.INCONCLUSIVE and not rule.required)",
                "(finding.verdict is not Verdict.FAILS and not rule.required)",
            ),
        ),
        (f"{PAGE}::test_an_attack_without_a_measure_need_not_tell_either",),
    ),
    PlantedFault(
        "what is not required stands among the rest",
        "Attacks that the gate does not require stand above what it could not tell.",
        "threat_models.report.first_page:rows_of",
        (("key=lambda row: (row.remedy == NOT_REQUIRED, -row.state.rank)", "key=lambda row: -row.state.rank"),),
        (PAGE,),
    ),
    PlantedFault(
        "claims that are not reproduced blame members",
        "A plan whose noise does not keep its promise sends the reader to the members.",
        "threat_models.report.first_page:_remedy_of_noise",
        (("not promise.agrees or (", "("),),
        (f"{PAGE}::test_remedy_is_for_whoever_is_at_fault",),
    ),
    PlantedFault(
        "unread blocks of the last sum alone",
        "Blocks of earlier sums that no attack reads are not named.",
        "threat_models.attacks.targets:unread_in",
        (("for each in (view, *view.earlier):", "for each in (view,):"),),
        (f"{UNREAD}::test_unread_blocks_are_those_of_sums_that_are_seen",),
    ),
    PlantedFault(
        "best test vouches for earlier sums",
        "The best membership test of one sum forgets unread blocks of sums before it.",
        "threat_models.attacks.membership.aggregate:_run",
        (("unread = tuple(name for name in unread if name not in view.release)", "unread = ()"),),
        (EARLIER,),
    ),
    PlantedFault(
        "unread blocks of one session",
        "Of several sessions the first one's unread blocks alone withhold a verdict.",
        "threat_models.examination:examine",
        (("for view in views for name in unread_in(view)", "for name in unread_in(views[0])"),),
        (ANY_SESSION,),
    ),
    PlantedFault(
        "numbers beside the training of one round",
        "The second opinion counts what members noise beside one round's training.",
        "threat_models.estimation.recomputation:_with_training",
        (("total += own * _squared_mu_beside", "total += _squared_mu_beside"),),
        (f"{OPINION}::test_numbers_noised_beside_the_training_count",),
    ),
    PlantedFault(
        "settings that are new are the same",
        "A simulation with a further setting counts as the same one.",
        "threat_models.report.changes:_other_subject",
        (("for name in {*before, *after}", "for name in before"),),
        (f"{CHANGES}::test_audit_of_another_simulation_is_refused_unless_asked_for",),
    ),
    PlantedFault(
        "fewer members are the same",
        "An audit of some of the members is compared with one of all.",
        "threat_models.report.changes:_other_subject",
        (('if set(one["members"]) != set(other["members"]):', 'if set(other["members"]) - set(one["members"]):'),),
        (f"{CHANGES}::test_audit_of_another_session_is_refused_unless_asked_for",),
    ),
    PlantedFault(
        "less known is better",
        "An attack that succeeded and of which nothing is known any more counts as better.",
        "threat_models.report.changes:_kind",
        (
            (
                "if new is SessionState.UNTOLD and old is not SessionState.WITHSTOOD:",
                "if new is SessionState.UNTOLD and old is SessionState.ALLOWED:",
            ),
        ),
        (f"{CHANGES}::test_each_change_has_its_word",),
    ),
    PlantedFault(
        "noise of the first session alone",
        "Of several sessions the first decides.",
        "threat_models.evidence.session_noise:noise_of_sessions",
        (("in enumerate(sessions)", "in enumerate(sessions[:1])"),),
        (ALL_SESSIONS,),
    ),
    PlantedFault(
        "parts do not share false alarms",
        "Each block and sum may be called short as often as all together.",
        "threat_models.estimation.chi_square:measure_variance",
        (("* level / len(parts)", "* level"),),
        (SHARED,),
    ),
    PlantedFault(
        "counts less their noise",
        "Rounding is bounded by fewer records than the noisy counts leave possible.",
        "threat_models.evidence.session_noise:_most_records",
        (("+ reach)", "- reach)"),),
        (ROUNDING,),
    ),
    PlantedFault(
        "zero sums of other records",
        "Sums that are zero for centred records alone are measured where records are not centred.",
        "threat_models.evidence.blocks:noisy_sum_of",
        (("or not rule.centred:", "or rule.centred:"),),
        (GRADIENTS,),
    ),
    PlantedFault(
        "zero sums of the attacked round first",
        "Other rounds' noise counts only where the attacked one shows none.",
        "threat_models.evidence.transcripts:of_plans",
        (("noisy_sums=noisy_sums))", "noisy_sums=main.noisy_sums or noisy_sums))"),),
        (ALL_ROUNDS,),
    ),
    PlantedFault(
        "expired waivers are in force",
        "The page names waivers that are over.",
        "threat_models.report.gate_evaluation:judge",
        ((" if today <= waiver.expires)", ")"),),
        (IN_FORCE,),
    ),
    PlantedFault(
        "gates that fail by waiver",
        "A gate that fails is said to do so by waiver.",
        "threat_models.report.first_page:verdict_in_words",
        (("report.gate.outcome is GateOutcome.PASS and any(", "any("),),
        (BY_WAIVER,),
    ),
    PlantedFault(
        "gates that could not tell are allowed",
        "A gate that could not tell leaves the page with what is allowed.",
        "threat_models.report.content:AuditReport.state",
        (("is GateOutcome.FAIL else SessionState.UNTOLD)", "is GateOutcome.FAIL else SessionState.ALLOWED)"),),
        (OF_CONTROL,),
    ),
    PlantedFault(
        "best test vouches for what it does not see",
        "The best membership test names the blocks that it weighs, and forgets the others.",
        "threat_models.attacks.membership.aggregate:_run",
        (("for name in unread if name not in view.release", "for name in unread if name in view.release"),),
        (EARLIER,),
    ),
    PlantedFault(
        "unread blocks of the last session",
        "Of several sessions the last one's unread blocks alone withhold a verdict.",
        "threat_models.examination:examine",
        (("for view in views for name in", "for view in views[-1:] for name in"),),
        (ANY_SESSION,),
    ),
)
