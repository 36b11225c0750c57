"""Faults in what parties keep, erase, charge and refuse."""

from tests.mutations.planting import PlantedFault

SETTLEMENT = "federation/test_settlement.py"
SEALED = "session/test_sealed_files.py"
BORDER = "methods/test_gate.py::test_smaller_minimum_cohort_does_not_undercut_the_gate"
STALE = "federation/test_stale_states.py"

ENTRIES = (
    PlantedFault(
        "ended round not charged",
        "A plan that ended after an upload is charged for the rounds before that one alone.",
        "secagg.federation.client:FederationClient._settle",
        (
            (
                "sums = len(before) + self.ledger.has_uploaded(ended.context.round_digest)",
                "sums = max(1, len(before))",
            ),
        ),
        (f"{SETTLEMENT}::test_plan_that_ends_after_an_upload_is_charged_for_it",),
    ),
    PlantedFault(
        "ended round always charged",
        "A plan that ended before an upload is charged for that upload too.",
        "secagg.federation.client:FederationClient._settle",
        (("len(before) + self.ledger.has_uploaded(ended.context.round_digest)", "min(ended.number, len(before) + 1)"),),
        ("federation/test_rounds.py::test_too_few_for_the_next_round_end_the_plan",),
    ),
    PlantedFault(
        "a member that was away settles",
        "A member settles by the rounds that it saw, though a vector of another one may have left.",
        "secagg.federation.client:FederationClient._settle",
        (("len(seen) != ended.number or not self.ledger", "not self.ledger"),),
        (f"{SETTLEMENT}::test_member_that_missed_a_round_is_charged_for_the_whole_plan",),
    ),
    PlantedFault(
        "a member that was away settles up to its last upload",
        "A member that missed a round settles by the uploads that its ledger has.",
        "secagg.federation.client:FederationClient._settle",
        (
            ("len(seen) != ended.number or not self.ledger", "not self.ledger"),
            (
                "sums = len(before) + self.ledger.has_uploaded(ended.context.round_digest)",
                "sums = len(self.ledger.uploads())",
            ),
        ),
        (f"{SETTLEMENT}::test_member_that_missed_a_round_is_charged_for_the_whole_plan",),
    ),
    PlantedFault(
        "vector of a missed round not counted",
        "The end of a plan names no vector of a round that the member missed.",
        "secagg.federation.client:FederationClient.run",
        (("[*missed, *seen]", "seen"),),
        (f"{SETTLEMENT}::test_member_that_missed_a_round_is_charged_for_the_whole_plan",),
    ),
    PlantedFault(
        "constant key of private states",
        "Every private state is sealed under one constant key.",
        "secagg.session.sealed_state:keep_state",
        (("key = randomness.bytes(KEY_BYTES)", 'key = b"\\x01" * KEY_BYTES'),),
        (f"{SEALED}::test_every_sealing_has_a_fresh_key",),
    ),
    PlantedFault(
        "key of private states by the round",
        "A private state is sealed under a digest of its round, which everybody knows.",
        "secagg.session.sealed_state:keep_state",
        (
            (
                "key = randomness.bytes(KEY_BYTES)",
                "import hashlib\n\n        key = hashlib.sha256(round_digest + randomness.bytes(1)).digest()",
            ),
        ),
        (f"{SEALED}::test_every_sealing_has_a_fresh_key",),
    ),
    PlantedFault(
        "constant key of sessions",
        "Every version of a session's state is sealed under one constant key.",
        "secagg.session.sealed_state:Memory.keep",
        (("self._randomness.bytes(32)", "bytes(32)"),),
        (f"{SEALED}::test_every_sealing_has_a_fresh_key",),
    ),
    PlantedFault(
        "state of an earlier try stays",
        "The private state of a vector that never left stays beside the vector that leaves.",
        "secagg.federation.client:_RoundContributor.before_upload",
        (("keep_state(self.folder", '(self.folder / "private.state").exists() or keep_state(self.folder'),),
        (STALE,),
    ),
    PlantedFault(
        "first private state wins",
        "A private state takes the place of none that is there.",
        "secagg.session.sealed_state:keep_state",
        (("    if state:", "    if (folder / STATE_FILE).exists():\n        return\n    if state:"),),
        (STALE,),
    ),
    PlantedFault(
        "erased files keep their bytes",
        "Erasing a file unlinks it without writing zeros.",
        "secagg.session.sealed_state:overwrite",
        (("file.write(bytes(path.stat().st_size))", "pass"),),
        (f"{SEALED}::test_erased_files_hold_zeros",),
    ),
    PlantedFault(
        "zeros stay in memory",
        "Erasing a file does not wait until the zeros are on the disk.",
        "secagg.session.sealed_state:overwrite",
        (("            os.fsync(file.fileno())\n", ""),),
        (f"{SEALED}::test_erased_files_hold_zeros",),
    ),
    PlantedFault(
        "half of a file erased",
        "Erasing a file overwrites its first 16 bytes alone.",
        "secagg.session.sealed_state:overwrite",
        (("bytes(path.stat().st_size)", "bytes(16)"),),
        (f"{SEALED}::test_erased_files_hold_zeros",),
    ),
    PlantedFault(
        "replaced keys keep their bytes",
        "The key of the version before is unlinked without writing zeros.",
        "secagg.session.sealed_state:Memory.keep",
        (("overwrite(path)", "path.unlink()"),),
        (f"{SEALED}::test_replaced_key_of_a_session_holds_zeros",),
    ),
    PlantedFault(
        "state erased before its key",
        "A crash in between leaves a key whose state may still be on the medium.",
        "secagg.session.sealed_state:erase_state",
        (("(folder / KEY_FILE, folder / STATE_FILE)", "(folder / STATE_FILE, folder / KEY_FILE)"),),
        (f"{SEALED}::test_key_of_a_private_state_is_erased_first",),
    ),
    PlantedFault(
        "masked sums may lack one client more",
        "Masked sums are opened of one client fewer than the gate counts on.",
        "secagg.protection.masking.quorum:derive_thresholds",
        (("degree, shares, n - d)", "degree, shares, n - d - 1)"),),
        (f"{BORDER}[masked]",),
    ),
    PlantedFault(
        "shared sums may lack one client more",
        "Shared sums are opened of one client fewer than the gate counts on.",
        "secagg.protection.sharing.context:fewest",
        (("return present", "return max(needed, present - 1)"),),
        (f"{BORDER}[shared]",),
    ),
    PlantedFault(
        "encrypted sums may lack one client more",
        "Encrypted sums are opened of one client fewer than the gate counts on.",
        "secagg.protection.encryption.derivations:fewest",
        (("clients - context.dropouts", "clients - context.dropouts - 1"),),
        (f"{BORDER}[encrypted]",),
    ),
    PlantedFault(
        "masked sums by the minimum cohort",
        "A minimum cohort below all but the dropouts lets smaller masked sums be opened.",
        "secagg.protection.masking.quorum:derive_thresholds",
        (("degree, shares, n - d)", "degree, shares, least)"),),
        (f"{BORDER}[masked]",),
    ),
    PlantedFault(
        "colluders count as honest in groups",
        "Groups of members have one member fewer than hide a member.",
        "secagg.plan_facts.facts:group_least",
        (("plan.dropouts + 2", "plan.dropouts + 1"),),
        ("experiments/test_tuning.py::test_members_allow_so_many_settings",),
    ),
    PlantedFault(
        "renewal keeps the TLS key",
        "A change of keys may be for the TLS key in force.",
        "secagg.transport.register:Register._fresh_keys",
        (("{old.member.identity}", "{old.member.identity, old.member.tls_spki_sha256}"),),
        ("transport/test_membership.py::test_no_change_of_keys_keeps_a_tls_key",),
    ),
    PlantedFault(
        "keys of before the last come back",
        "The register remembers the keys in force alone.",
        "secagg.transport.register:Register.enter",
        (
            (
                "        self._used |= fresh\n",
                "        self._used = (self._used - {old.member.tls_spki_sha256} if old else self._used) | fresh\n",
            ),
        ),
        ("transport/test_membership.py::test_no_change_of_keys_keeps_a_tls_key",),
    ),
    PlantedFault(
        "opened is over",
        "`secagg status` calls a session over while members still fetch its outcome.",
        "secagg.session.status:SessionStatus.is_over",
        (("(self.is_opened and self.is_confirmed and not self.waiting_for)", "self.is_opened"),),
        ("cli/test_status_command.py::test_session_is_over_once_everybody_has_the_outcome",),
    ),
    PlantedFault(
        "acknowledgements of two outcomes confirm one",
        "A confirmation may hold acknowledgements of another outcome, so that two clients have two results.",
        "secagg.session.rounds:confirmer_of",
        (("payload_of(body, Acknowledgement) != expected", "False"),),
        ("session/test_one_result.py::test_confirmation_that_is_none_is_refused[masked-other outcome-now]",),
    ),
    PlantedFault(
        "too few acknowledgements confirm",
        "A confirmation may hold fewer acknowledgements than no second outcome can have.",
        "secagg.session.rounds:check_confirmation",
        (("len(signers) < enough", "not signers"),),
        ("session/test_one_result.py::test_confirmation_that_is_none_is_refused[shared-too few-now]",),
    ),
    PlantedFault(
        "one acknowledgement confirms twice",
        "A confirmation may hold one party's acknowledgement several times.",
        "secagg.session.rounds:check_confirmation",
        (("signers != sorted(set(signers))", "False"),),
        ("session/test_one_result.py::test_confirmation_that_is_none_is_refused[masked-twice-now]",),
    ),
    PlantedFault(
        "files with too few acknowledgements confirm",
        "`secagg confirm` writes down what the given files hold, however few have acknowledged the outcome.",
        "secagg.session.confirming:_confirmation",
        (("if len(valid) < enough:", "if not valid:"),),
        ("session/test_one_result.py::test_several_files_complete_an_outcome[masked-too_few0-enough0]",),
    ),
    PlantedFault(
        "one acknowledgement in two files confirms twice",
        "`secagg confirm` counts frames, not the parties that signed them.",
        "secagg.session.confirming:_confirmation",
        (
            (
                "valid[confirmer_of(setup, frame, expected)] = frame",
                "valid[len(valid) + 0 * confirmer_of(setup, frame, expected)] = frame",
            ),
        ),
        ("session/test_one_result.py::test_several_files_complete_an_outcome[masked-too_few1-enough1]",),
    ),
    PlantedFault(
        "server is blamed for what was gathered",
        "`secagg verify` names the server for acknowledgements that a transcript's author has put together.",
        "secagg.verification.party_verification:MemberVerifier._check_confirmation",
        (('record.kind != "confirmed"', "True"),),
        ("session/test_one_result.py::test_made_up_confirmation_does_not_verify[masked-too few]",),
    ),
    PlantedFault(
        "anybody confirms",
        "A client's acknowledgement counts where only helpers' do, and a stranger's anywhere.",
        "secagg.session.rounds:_open_acknowledgement",
        (("if sender in signers:", "if sender is not None:"),),
        ("session/test_one_result.py::test_confirmation_that_is_none_is_refused[shared-stranger-now]",),
    ),
    PlantedFault(
        "next round begins unconfirmed",
        "The server begins the next round though too few have acknowledged this one, and says that nobody joined it.",
        "secagg.federation.server:FederationServer.run",
        (("await stage.session.run()", "await (stage.session.run() if stage.setup.is_last else asyncio.sleep(0))"),),
        ("session/test_one_result_of_rounds.py::test_server_ends_with_the_round_that_too_few_confirm[draw-one life]",),
    ),
    PlantedFault(
        "next round waits for all",
        "One client that is slow to acknowledge a round holds up all others.",
        "secagg.session.server_session:ServerSession._until_complete",
        (("if protocol.is_confirmed and not self._setup.is_last:", "if False:"),),
        ("session/test_one_result_of_rounds.py::test_next_round_waits_for_enough_and_not_for_all",),
    ),
    PlantedFault(
        "who has left is waited for",
        "A server whose outcome is not confirmed names parties that have left the session for good.",
        "secagg.session.server_protocol:ServerProtocol.could_confirm",
        (("heard + len(names) >= enough", "True"),),
        ("session/test_one_result.py::test_too_many_have_left_to_confirm_anything[masked-left2]",),
    ),
    PlantedFault(
        "unconfirmed head has the name of a result",
        "A client gives the head its name before the outcome is confirmed.",
        "secagg.session.member_session:MemberSession._complete",
        (("UNCONFIRMED_HEAD_FILE, told.head", "'head.safetensors', told.head"),),
        ("session/test_one_result.py::test_server_that_keeps_the_confirmation_back_gives_nobody_a_result[masked]",),
    ),
    PlantedFault(
        "accepted and left out in peace",
        "An abort of its own does not contradict the server's signed acceptance of a client's upload.",
        "secagg.protection.interface:Acceptance.is_broken_by",
        (("is_personal or self.denies(reason, name)", "self.denies(reason, name)"),),
        ("session/test_acceptance.py::test_server_that_leaves_out_what_it_signed_for_is_named[masked]",),
    ),
    PlantedFault(
        "acceptance of another upload counts",
        "A client keeps the server's signature for a frame that it has not sent.",
        "secagg.session.member_session:MemberSession._send_to_server",
        (("payload_of(body, Taken).frame != hashlib.sha256(frame).digest()", "False"),),
        ("session/test_acceptance.py::test_signature_for_something_else_is_refused",),
    ),
    PlantedFault(
        "late acceptance hides what was heard",
        "A late answer to an upload makes the next life ask again for a step's message, and believe another one.",
        "secagg.session.member_session:_MemberTranscript._take_servers",
        (("if body.step == tag_of(Taken):", "self.heard = body\n        if body.step == tag_of(Taken):"),),
        (
            (
                "session/test_lies_at_every_write.py::test_lie_around_a_death"
                "[masked-client-Survivors-from the second life on]"
            ),
        ),
    ),
    PlantedFault(
        "only clients owe an acknowledgement",
        "The server does not wait for the other helpers' acknowledgements.",
        "secagg.session.server_protocol:ServerProtocol.waiting_for",
        (
            (
                "self.recipients.get(tag_of(Outcome), ())",
                "set(self.recipients.get(tag_of(Outcome), ())) & set(self._setup.context.clients)",
            ),
        ),
        ("cli/test_status_command.py::test_session_is_over_once_everybody_has_the_outcome",),
    ),
    PlantedFault(
        "negative entries raise no doubt",
        "The bound of opened entries looks at positive ones alone.",
        "secagg.session.outcome:broken_bounds",
        (("int(values.max()) > most or int(values.min()) < least", "int(values.max()) > most"),),
        ("session/test_noise.py::test_limit_of_an_opened_entry_is_the_same_for_both_signs",),
    ),
    PlantedFault(
        "bound of entries by absolute values",
        "The least int64, whose absolute value is negative, is within the bound of opened entries.",
        "secagg.session.outcome:broken_bounds",
        (("int(values.max()) > most or int(values.min()) < least", "abs(values).max() > most"),),
        ("session/test_noise.py::test_an_entry_that_no_noise_explains_is_doubted",),
    ),
    PlantedFault(
        "counts may be negative",
        "Opened counts may be as far below zero as above it.",
        "secagg.session.outcome:broken_bounds",
        (("in (Kind.CENSUS, Kind.COUNTS)", "in ()"),),
        ("session/test_sum_bounds.py::test_liar_in_the_counts_is_refused",),
    ),
    PlantedFault(
        "server calls an aggregator",
        "An aggregator's endpoint takes calls under the server's certificate.",
        "secagg.transport.server:Endpoint._member_behind",
        (("index in (self._me, SERVER_INDEX)", "index == self._me"),),
        ("transport/test_pinning.py::test_only_clients_and_others_call_an_aggregator",),
    ),
    PlantedFault(
        "aggregator calls itself",
        "An aggregator's endpoint takes calls under its own certificate.",
        "secagg.transport.server:Endpoint._member_behind",
        (("index in (self._me, SERVER_INDEX)", "index == SERVER_INDEX"),),
        ("transport/test_pinning.py::test_only_clients_and_others_call_an_aggregator",),
    ),
)
