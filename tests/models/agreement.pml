/* Agreement: a model of draw, endorsement, opening, acknowledgement, confirmation and return, for SPIN.

   protos/secagg/v1/PROTOCOL.md describes the protocol and proves the same properties for all numbers of clients. This
   model is a second look, by exhaustive search, at four clients (indices 0 to 3), the draw (round 0) and three rounds.
   Colluding clients have the highest indices. `python -m tests.models.search` runs it and all its variants, and writes
   agreement.log.

   What is checked
     P1  No two honest clients accept different outcomes of one round, nor different results at the plan's end.
     P2  No two survivor sets of one round are both opened; no two draws are both valid for honest clients.
     P3  No honest party enters a round from another outcome (or draw) than another honest party.
   Each is an assertion where the step happens. A run that breaks one stops there, so that all honest clients in a
   round have the same round digest: that is why no record names one.

   Who does what
     The server is malicious and is the network. It has no process: a client may take each step for which messages with
     valid signatures exist, in every order and at every time, or never. A message may be repeated, kept back, and shown
     to some clients alone. Colluding clients sign everything. Honest clients sign what their state allows.

   What is left out (abstractions)
     - Signatures, hashes and the binding of every frame to its round are perfect: a signature is an entry in `own` or
       `ack`. Shares, masks, keys and vectors do not occur: to open a set is one step, allowed by t endorsements.
     - An outcome is the survivor set (own opened set, which a client compares) and one of two values, 1 and 2, that
       stand for sum, result and next opening together. Two values suffice, since a violation is a pair that differs.
       The first value that is acknowledged in a round is called 1: values are only compared for equality.
     - A list of commitments in the draw is a set of at least t members and one of two nonces of the colluders.
     - All four clients are in every round. A client that is not drawn for a round behaves as one that is away.
     - A crash restores what the journal holds, so it changes no state; what a lost journal leads to is a mutant.
     - An exact reduction: once all honest parties have left a round, its records, which no step reads any more, are
       set to zero (dead variables: Bozga, Fernandez & Ghirvu 1999, "State space reduction based on live variables
       analysis"). For the draw and one round the search without it was made once: 4,754,177 states in place of 797,369,
       the same verdict. Nothing else is cut: no limit of depth or memory is reached, no states are hashed away.

   Mutants (each must break a property): see MUTANTS in search.py.
   Helpers: with HELPER an honest key holder (or the one honest aggregator, all others colluding) confirms outcomes in
   place of clients. The survivor set is the helper's then, and there is no draw: neither is modelled. What
   the helper acknowledges is called 1. With RETURN_BY_HELPER its signature stands for missed rounds, as in the code
   (`_witnesses` in secagg/session/rounds.py). Without it clients' signatures do, as they once did: a mutant. */

#define CLIENTS 4
#define LAST 3
#define END 4 /* the step after the last round, in which a client that was away is given the result */

#ifndef COLLUDERS
#define COLLUDERS 1
#endif
#define LEAST ((CLIENTS + COLLUDERS) / 2 + 1) /* the least t with 2t > n + c */
#ifndef QUORUM
#define QUORUM LEAST
#endif
#ifndef WITNESSES
#define WITNESSES QUORUM
#endif
#define DROPOUTS (CLIENTS - LEAST) /* the most that a plan can tolerate */
#define HONEST (CLIENTS - COLLUDERS)

mtype:phase = { Joined, Endorsed, Opened, Acknowledged, Away, Done };

mtype:phase phase[CLIENTS];
byte at[CLIENTS];               /* the round that a client is in, or was in before it was left behind */
byte own[CLIENTS * END];        /* the set that a client has endorsed in a round (bits), or its list in the draw */
byte ack[CLIENTS * END];        /* the value that a client has acknowledged in a round */
#ifdef HELPER
#define FIRST Opened
byte helper_at = 1;
byte helper_ack[END];
#else
#define FIRST Joined
#endif
#if defined(TWO_SETS) || defined(TWO_REVEALS)
byte older[CLIENTS * END];      /* another set or list that it has signed too */
#endif
#ifdef TWO_ACKNOWLEDGEMENTS
byte withdrawn[CLIENTS * END];  /* another value that it has acknowledged too */
#endif
#ifdef WITNESS_RUN
bit returned;
#endif

/* What honest parties did first, for the assertions alone; zero: nothing yet. */
byte opened[END];
byte accepted[END];
byte entered[END + 1];

#define PLACE(i) (at[i] * CLIENTS + i)
#define HAS(set, j) (((set) >> (j)) & 1)
#define ALL_OF(P, r, x, y) (P(r, 0, x, y) && P(r, 1, x, y) && P(r, 2, x, y) && P(r, 3, x, y))
#define COUNT(P, r, x, y) (P(r, 0, x, y) + P(r, 1, x, y) + P(r, 2, x, y) + P(r, 3, x, y))

/* Whether client j has signed a set, or revealed for a list of the draw. */
#if defined(TWO_SETS) || defined(TWO_REVEALS)
#define SIGNED(r, j, set) (j >= HONEST || own[(r) * CLIENTS + j] == (set) || older[(r) * CLIENTS + j] == (set))
#else
#define SIGNED(r, j, set) (j >= HONEST || own[(r) * CLIENTS + j] == (set))
#endif
#define ENDORSES(r, j, set, unused) (HAS(set, j) && SIGNED(r, j, set))
#define ENDORSED_BY(r, set) COUNT(ENDORSES, r, set, 0)
#define REVEALS(r, j, list, unused) (!HAS(list, j) || SIGNED(r, j, list))
#define IS_DRAW(list) ((list) != 0 && ALL_OF(REVEALS, 0, list, 0))

/* Whether client j has acknowledged a value together with a set; of the value alone, as a Return counts it. */
#if defined(TWO_ACKNOWLEDGEMENTS)
#define SAID(r, j, value) (ack[(r) * CLIENTS + j] == (value) || withdrawn[(r) * CLIENTS + j] == (value))
#elif defined(RESULT_NOT_BOUND)
#define SAID(r, j, value) (ack[(r) * CLIENTS + j] == (value) || ((r) == LAST && ack[(r) * CLIENTS + j] > 0))
#else
#define SAID(r, j, value) (ack[(r) * CLIENTS + j] == (value))
#endif
#define AGREES(r, j, set, value) (j >= HONEST || (SAID(r, j, value) && own[(r) * CLIENTS + j] == (set)))
#define IS_WITNESS(r, j, i, value) (j != (i) && (j >= HONEST || SAID(r, j, value)))

#if defined(NO_CONFIRMATION)
#define IS_CONFIRMED(i) true
#elif defined(HELPER)
#define IS_CONFIRMED(i) (helper_ack[at[i]] == ack[PLACE(i)])
#else
#define IS_CONFIRMED(i) (COUNT(AGREES, at[i], own[PLACE(i)], ack[PLACE(i)]) >= QUORUM)
#endif

#if defined(HELPER) && defined(RETURN_BY_HELPER)
#define IS_WITNESSED(r, i, value) (helper_ack[r] == (value))
#else
#define IS_WITNESSED(r, i, value) (COUNT(IS_WITNESS, r, i, value) >= WITNESSES)
#endif
#define CAN_RETURN(i, r, value) (phase[i] == Away && at[i] > 0 && at[i] <= r && IS_WITNESSED(r, i, value))

#define LEFT(j, r) (j >= HONEST || at[j] > (r))
#ifdef HELPER
#define ALL_LEFT(r) (LEFT(0, r) && LEFT(1, r) && LEFT(2, r) && helper_at > (r))
#define IS_SECOND(r) true
#else
#define ALL_LEFT(r) (LEFT(0, r) && LEFT(1, r) && LEFT(2, r))
#define IS_SECOND(r) (ack[(r) * CLIENTS] + ack[(r) * CLIENTS + 1] + ack[(r) * CLIENTS + 2] > 0)
#endif

/* Sets that hold the client and lack at most D clients. */
inline sign_a_set(i) {
  if
  :: DROPOUTS > 0 && HAS(7, i) -> own[PLACE(i)] = 7
  :: DROPOUTS > 0 && HAS(11, i) -> own[PLACE(i)] = 11
  :: DROPOUTS > 0 && HAS(13, i) -> own[PLACE(i)] = 13
  :: DROPOUTS > 0 && HAS(14, i) -> own[PLACE(i)] = 14
  :: own[PLACE(i)] = 15
  fi;
  if
  :: true
  :: at[i] == 0 -> own[i] = own[i] + 16
  fi;
  phase[i] = Endorsed
}

inline open(i) {
  assert(opened[at[i]] == 0 || opened[at[i]] == own[PLACE(i)]);    /* P2 */
  opened[at[i]] = own[PLACE(i)];
  phase[i] = Opened
}

inline note_entry(round, how) {
  assert(entered[round] == 0 || entered[round] == how);            /* P3; at the end P1 */
  entered[round] = how
}

inline enter(i, round, how) {
  note_entry(round, how);
  at[i] = round;
  if
  :: round == END -> phase[i] = Done
  :: else -> phase[i] = FIRST
  fi
}

inline accept(i) {
  assert(accepted[at[i]] == 0 || accepted[at[i]] == 4 * own[PLACE(i)] + ack[PLACE(i)]);    /* P1 */
  accepted[at[i]] = 4 * own[PLACE(i)] + ack[PLACE(i)];
  if
  :: at[i] == 0 -> enter(i, 1, own[i])
  :: at[i] == 1 -> enter(i, 2, ack[CLIENTS + i])
  :: at[i] == 2 -> enter(i, 3, ack[2 * CLIENTS + i])
  :: at[i] == 3 -> enter(i, 4, ack[3 * CLIENTS + i])
  fi
}

inline come_back(i, round, how) {
  enter(i, round, how);
#ifdef WITNESS_RUN
  returned = true
#endif
}

inline forget_round(r) {
  if
  :: ALL_LEFT(r) ->
     own[(r) * CLIENTS] = 0; own[(r) * CLIENTS + 1] = 0; own[(r) * CLIENTS + 2] = 0;
     ack[(r) * CLIENTS] = 0; ack[(r) * CLIENTS + 1] = 0; ack[(r) * CLIENTS + 2] = 0;
     opened[r] = 0; accepted[r] = 0; entered[(r) + 1] = 0
  :: else
  fi
}
inline forget() { forget_round(0); forget_round(1); forget_round(2); forget_round(3) }

proctype client(byte i) {
  do
#ifdef TWO_SETS
  :: atomic { phase[i] == Endorsed && at[i] > 0 && older[PLACE(i)] == 0 -> older[PLACE(i)] = own[PLACE(i)]; sign_a_set(i) }
#endif
#ifdef TWO_REVEALS
  :: atomic { phase[i] == Endorsed && at[i] == 0 && older[i] == 0 -> older[i] = own[i]; sign_a_set(i) }
#endif
  /* Reveal for a list of the draw, or endorse a survivor set. */
  :: atomic { phase[i] == Joined -> sign_a_set(i) }
  /* Check the draw; open shares for a set that t of its members have endorsed. */
  :: d_step { phase[i] == Endorsed && at[i] == 0 && IS_DRAW(own[i]) -> open(i) }
  :: d_step { phase[i] == Endorsed && at[i] > 0 && ENDORSED_BY(at[i], own[PLACE(i)]) >= QUORUM -> open(i) }
  /* Check the server's outcome and acknowledge it, once and for all. */
  :: d_step { phase[i] == Opened -> ack[PLACE(i)] = 1; phase[i] = Acknowledged }
  :: d_step { phase[i] == Opened && IS_SECOND(at[i]) -> ack[PLACE(i)] = 2; phase[i] = Acknowledged }
#ifdef TWO_ACKNOWLEDGEMENTS
  :: d_step { phase[i] == Acknowledged && withdrawn[PLACE(i)] == 0 ->
       withdrawn[PLACE(i)] = ack[PLACE(i)]; ack[PLACE(i)] = 3 - ack[PLACE(i)] }
#endif
  /* Check a confirmation of the outcome that it has acknowledged itself: now it is a result, and opens the next round. */
  :: d_step { phase[i] == Acknowledged && IS_CONFIRMED(i) -> accept(i); forget() }
  /* Be left behind, or not drawn, or away. */
  :: d_step { phase[i] != Away && phase[i] != Done -> phase[i] = Away }
  /* Be shown a draw that it came too late for. */
  :: d_step { phase[i] == Away && at[i] == 0 && IS_DRAW(own[0]) -> come_back(i, 1, own[0]); forget() }
  :: d_step { phase[i] == Away && at[i] == 0 && IS_DRAW(own[1]) -> come_back(i, 1, own[1]); forget() }
  :: d_step { phase[i] == Away && at[i] == 0 && IS_DRAW(own[2]) -> come_back(i, 1, own[2]); forget() }
  /* Return into any later round, or to the result, on the word of t others in the round before it. */
  :: d_step { CAN_RETURN(i, 1, 1) -> come_back(i, 2, 1); forget() }
  :: d_step { CAN_RETURN(i, 1, 2) -> come_back(i, 2, 2); forget() }
  :: d_step { CAN_RETURN(i, 2, 1) -> come_back(i, 3, 1); forget() }
  :: d_step { CAN_RETURN(i, 2, 2) -> come_back(i, 3, 2); forget() }
  :: d_step { CAN_RETURN(i, 3, 1) -> come_back(i, 4, 1); forget() }
  :: d_step { CAN_RETURN(i, 3, 2) -> come_back(i, 4, 2); forget() }
  :: phase[i] == Done ->
#ifdef WITNESS_RUN
     assert(!(returned && phase[0] == Done && phase[1] == Done && phase[2] == Done)); /* must fail: such runs exist */
#endif
     break
  od
}

#ifdef HELPER
proctype helper() {
  do
  :: d_step { helper_at < END ->
       helper_ack[helper_at] = 1; note_entry(helper_at + 1, 1); helper_at++; forget() }
  :: helper_at == END -> break
  od
}
#endif

init {
  atomic {
    byte k;
#ifdef HELPER
    run helper();
    for (k : 0 .. HONEST - 1) { phase[k] = FIRST; at[k] = 1; run client(k) }
#else
    for (k : 0 .. HONEST - 1) { phase[k] = FIRST; run client(k) }
#endif
  }
}
