"""Faults in what audits say: noise of the session, waivers, unread blocks, second opinions, and older reports."""

from tests.mutations.planting import PlantedFault

SESSION_NOISE = "threat_models/evidence/test_session_noise.py"
GATE = "threat_models/report/test_gate.py"
WAIVERS = "threat_models/report/test_waivers.py"
PAGE = "threat_models/report/test_first_page.py"
CHANGES = "threat_models/report/test_changes.py"
UNREAD = "threat_models/attacks/test_unread.py"
OPINION = "threat_models/estimation/test_recomputation.py"

ENTRIES = (
    PlantedFault(
        "noise of the best session",
        "Of several sessions the one whose noise is not too small decides.",
        "threat_models.evidence.session_noise:noise_of_sessions",
        (("(not each.is_short, each.low", "(each.is_short, each.low"),),
        (SESSION_NOISE,),
    ),
    PlantedFault(
        "sessions do not share false alarms",
        "Each of several sessions may be called short as often as one alone.",
        "threat_models.estimation.chi_square:measure_variance",
        (("SHORT_LEVEL / sessions / 2", "SHORT_LEVEL / 2"),),
        (SESSION_NOISE,),
    ),
    PlantedFault(
        "records of one member",
        "Rounding is bounded as if one member alone had records.",
        "threat_models.evidence.session_noise:_most_records",
        (("session.plan.max_records * len(session.members)", "session.plan.max_records"),),
        (SESSION_NOISE,),
    ),
    PlantedFault(
        "thirty percent too small is enough",
        "Noise counts as enough whose σ is 30 % too small.",
        "threat_models.report.session_noise",
        (("0.8**2", "0.7**2"),),
        (f"{SESSION_NOISE}::test_noise_twenty_percent_too_small_is_never_enough",),
    ),
    PlantedFault(
        "enough by the ratio",
        "Noise is enough where its measured variance is, whatever the lower limit.",
        "threat_models.report.session_noise:SessionNoise.is_enough",
        (("self.low >=", "self.ratio >="),),
        (GATE + "::test_noise_of_the_session_is_judged_by_its_limits",),
    ),
    PlantedFault(
        "zero sums of centred records alone",
        "Sums that are zero for all records are left out where records are not centred.",
        "threat_models.evidence.blocks:noisy_sum_of",
        (("if is_centred or not rule.centred:", "if is_centred:"),),
        (SESSION_NOISE,),
    ),
    PlantedFault(
        "zero sums of the last round alone",
        "Of a plan's transcripts the noise of the attacked round alone is measured.",
        "threat_models.evidence.transcripts:of_plans",
        (("for noisy in numbered[number].noisy_sums", "for noisy in main.noisy_sums if number == main.number"),),
        (SESSION_NOISE,),
    ),
    PlantedFault(
        "short noise of lax gates",
        "Noise that is too small fails only where the gate asks for measured noise.",
        "threat_models.report.gate_evaluation:_judge_session_noise",
        (("if noise is not None and noise.is_short:", "if gate.measured and noise is not None and noise.is_short:"),),
        (GATE, WAIVERS),
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
        (WAIVERS, GATE + "::test_waiver_counts_up_to_its_day"),
    ),
    PlantedFault(
        "by waiver wherever there is one",
        "A gate that passes by itself is said to pass by waiver, because one is in force.",
        "threat_models.report.first_page:verdict_in_words",
        (("any(each.waived for each in report.gate.waivers)", "bool(report.gate.waivers)"),),
        (WAIVERS, PAGE),
    ),
    PlantedFault(
        "void waivers count as used",
        "A waiver that has no effect is said to let a failure pass.",
        "threat_models.report.gate_evaluation:_in_force",
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
                "if self.gate is not None and self.gate.outcome is not Outcome.PASS:",
                "if self.gate is not None and self.gate.outcome is Outcome.FAIL:",
            ),
        ),
        (PAGE, GATE),
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
        "threat_models.attacks.unread:unread_in",
        (("for each in (view, *view.earlier):", "for each in (view,):"),),
        (f"{UNREAD}::test_unread_blocks_are_those_of_sums_that_are_seen",),
    ),
    PlantedFault(
        "best test vouches for earlier sums",
        "The best membership test of one sum forgets unread blocks of sums before it.",
        "threat_models.attacks.membership.aggregate:_run",
        (("unread = tuple(name for name in unread if name not in view.release)", "unread = ()"),),
        (UNREAD,),
    ),
    PlantedFault(
        "unread blocks of one session",
        "Of several sessions the first one's unread blocks alone withhold a verdict.",
        "threat_models.audit:examine",
        (("for view in views for name in unread_in(view)", "for name in unread_in(views[0])"),),
        (UNREAD,),
    ),
    PlantedFault(
        "numbers beside the training of one round",
        "The second opinion counts what members noise beside one round's training.",
        "threat_models.estimation.recomputation:_with_training",
        (("total += own * _squared_mu_beside", "total += _squared_mu_beside"),),
        (OPINION,),
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
                "if new is State.UNTOLD and old is not State.WITHSTOOD:",
                "if new is State.UNTOLD and old is State.ALLOWED:",
            ),
        ),
        (f"{CHANGES}::test_each_change_has_its_word",),
    ),
)
