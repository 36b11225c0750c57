"""Strings that are hashed, signed, or tell messages apart are protocol: no rename of words may touch them.

The lists below are literal. A change of one breaks stored transcripts, digests and ledgers, and every party that runs
another release; so it is made on purpose, with new test vectors, or not at all.
"""

from __future__ import annotations

from typing import get_args

from secagg.agreement.plan import MOST_NOISE_LEVELS
from secagg.crypto.labels import labelled
from secagg.protection.masking.derivations import SHARINGS
from secagg.transcript.frames import MAGIC, Kind
from tests.architecture.hashed_strings import Strings, asked_by_name, names, tags
from tests.architecture.source import installed, modules

HASHED = {
    "BFV parameters",
    "a draw of evolution",
    "aborted",
    "advertisement",
    "bit proof weights",
    "bit proof",
    "bit prover",
    "challenge",
    "cohorts",
    "confirmed",
    "context",
    "contribution",
    "declaration",
    "dp-sgd",
    "draw",
    "encrypted context",
    "encrypted upload",
    "enrolment",
    "enrolment request",
    "entry blindings",
    "envelope",
    "first population",
    "frame",
    "generated",
    "identities",
    "key change",
    "ledger",
    "ledger upload",
    "members",
    "next noise seed",
    "next population",
    "noise commitment",
    "nonce",
    "nonce commitment",
    "nonce reveal",
    "opened sum",
    "opening",
    "opens",
    "outcome",
    "own ",
    "own share",
    "pairwise mask",
    "plan",
    "plan approval",
    "plan note",
    "policy",
    "proven bits",
    "public randomness",
    "public randomness of a reference",
    "public rotation",
    "public start",
    "published key",
    "received",
    "record",
    "reference",
    "removable noise",
    "reproducible noise",
    "return",
    "ring",
    "roster",
    "rotation",
    "round",
    "salt",
    "sealed share",
    "secagg backbone v1: features {}",
    "secagg backbone v1: pixels {}",
    "secagg backbone v1: {} on {} in batches of {}",
    (
        "secagg backbone v1: scattering:J=2:L=8:orders=0..2:places=3x3; Morlet, angles (3-k)*pi/8, sigma 0.8*2^j, "
        "frequency 3*pi/4/2^j, slant 1/2, wraps -2..2; phi sigma 1.6; reflected to ((side+4)//4+1)*4; "
        "means over overlapping thirds; each order centred and of length 1, below 1e-9 zero; {}x{}"
    ),
    "secagg concatenation v1: {}",
    "secagg diffusion v1: ",
    "secagg encoder v1: ",
    "secagg feature hashing v1\x00{}\x00{}",
    "secagg feature map v1: {} {}",
    "secagg features v1: {}\n",
    "secagg random features v1: size {}, {} bits, 8 bytes - {}, 2^-{}",
    "secagg random features v1: {} x {}",
    "secagg slots v2: {}, {}",
    "seed commitment",
    "seed of the cohorts",
    "self mask",
    "sent",
    "session of a round",
    "share coefficients",
    "shared accepted",
    "shared list",
    "shared manifest",
    "shared pledge",
    "shared receipt",
    "shared session",
    "shared set",
    "shared stream",
    "shared sum",
    "simulated draw",
    "start kit",
    "state",
    "survivors",
    "tag vector",
    "tags",
    "upload mask",
    "virtual features",
    "{} share",
}
"""What enters a digest, a signature, a derived key or a stream: labels, purposes, seeds; `{}` is what is put in."""

NAMES = {
    "accuracy",
    "augmented {}",
    "ccvr",
    "cnn",
    "cnn-batch",
    "cnn-group",
    "contrast:{}",
    "dual-{}",
    "features",
    "fedavg",
    "fedavg-one-shot",
    "fedbip",
    "fedcgs",
    "feddat",
    "fedpcl",
    "fedpop",
    "fedproto",
    "fedtc",
    "fraug",
    "head-{}",
    "mlp-batch:{}",
    "mlp:{}",
    "mpft",
    "nearest:{}",
    "pixels",
    "projected:{}",
    "prototypes",
    "scattering",
    "similar:{}",
    "softmax",
}
"""Of methods, programs and backbones: plans name them, and programs start from the digest of their names."""

TAGS = {
    "Abort",
    "AcceptedUploads",
    "Acknowledgement",
    "Advertised",
    "AggregatorPledge",
    "CiphertextUploaded",
    "Collecting",
    "Commitments",
    "Confirmation",
    "Dealing",
    "Dealt",
    "Declaration",
    "Decline",
    "Directory",
    "Draw",
    "DrawAwaited",
    "DrawChecked",
    "EncryptedUpload",
    "Endorsed",
    "Endorsement",
    "HeldKey",
    "Inbox",
    "KeyAdvertisement",
    "ManifestConflict",
    "NonceCommitment",
    "NonceCommitted",
    "NonceReveal",
    "NonceRevealed",
    "Opened",
    "OpenedSecret",
    "OpenedSum",
    "Opening",
    "Outcome",
    "PlainUploaded",
    "PledgeConflict",
    "PublishedKey",
    "Quorum",
    "Receipt",
    "ReleasedShares",
    "Return",
    "SessionKeys",
    "SetCommitted",
    "SetLists",
    "SetPledges",
    "SetRevealed",
    "ShareManifest",
    "ShareReceipt",
    "SharesSent",
    "SpentKey",
    "SumCommitted",
    "SumPledges",
    "SumRequest",
    "SumRevealed",
    "SumShare",
    "Survivors",
    "Unmasking",
    "Taken",
    "UploadHeader",
    "UploadTags",
    "Uploaded",
}
"""Messages that frames and remembered states name; each by its protobuf message, whose name is the tag."""

UNNAMED = {
    "Attachment",
    "Centres",
    "Frame",
    "FrameBody",
    "HeldShare",
    "KeptClasses",
    "Member",
    "ModelState",
    "OpenedShare",
    "Plan",
    "PlannedNoise",
    "Record",
    "RefinementBroadcast",
    "Remembered",
    "Roster",
    "RoundOpening",
    "SealedShare",
}
"""Messages that nothing names on the wire or on disk: their classes may have any name."""

OTHER_STEPS = {"Drawn"}
"""What a member asks for by the name of a class that is no message: the end of a draw."""

KINDS = (
    "salt", "plan", "roster", "draw", "round", "return",
    "policy", "ledger", "received", "sent", "confirmed", "closed", "aborted",
)  # fmt: skip
"""Of records in a transcript; each is hashed with what it holds."""

SHARE_LABELS = ("seed share", "key share", "noise 1 share", "noise 2 share")
"""Of a share's hash under `masked`; the words before "share" are hashed into the keys of coefficients, too."""


def _compared(found: set[str], listed: set[str], what: str) -> list[str]:
    """One sentence for each difference."""
    gone = [f"{each!r} was {what} and is no longer: it is protocol, put it back" for each in sorted(listed - found)]
    return gone + [f"{each!r} is {what} and not listed here: list it if it is meant" for each in sorted(found - listed)]


def test_hashed_strings_are_the_listed_ones() -> None:
    """No string that enters a hash, a signature or a derived key is changed, added or removed without this list."""
    differences = _compared(Strings(installed()).found(), HASHED, "hashed")
    assert not differences, "\n".join(differences)


def test_names_are_the_listed_ones() -> None:
    """No method, program or backbone calls itself otherwise than listed; baselines stand in no plan."""
    named = tuple(each for each in modules("secagg", "methods") if "baselines" not in each.name)
    differences = _compared(names(Strings(installed()), named), NAMES, "a name in plans or seeds")
    assert not differences, "\n".join(differences)


def test_tags_are_the_listed_ones() -> None:
    """A message that frames or remembered states name keeps its tag, whatever its class is called."""
    found = {proto: tag for proto, tag in tags(installed()).items() if proto not in UNNAMED}
    renamed = [f"{proto} has the tag {tag!r}: keep {proto!r}" for proto, tag in found.items() if tag != proto]
    renamed += _compared(set(found), TAGS, "a message that may be named")
    renamed += _compared(asked_by_name(installed()) - TAGS, OTHER_STEPS, "a class that goes by its name")
    assert not renamed, "\n".join(renamed)


def test_labels_are_framed_as_ever() -> None:
    """Every label has its prefix and its length before it, and each part its length."""
    assert labelled("frame", b"ab") == b"\0\0\0\0\0\0\0\x0fsecagg/v1/frame" + b"\0\0\0\0\0\0\0\x02ab"


def test_sharings_are_named_as_ever() -> None:
    """The secrets that a client deals keep their names and their order, one for each noise level."""
    assert tuple(f"{each} share" for each in SHARINGS) == SHARE_LABELS
    assert len(SHARINGS) == 2 + MOST_NOISE_LEVELS


def test_transcripts_are_told_apart_as_ever() -> None:
    """The first bytes of a transcript, and the kinds of its records."""
    assert MAGIC == b"secagg/records/1"
    assert get_args(Kind) == KINDS
