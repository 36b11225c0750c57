"""The encrypted protection: clients encrypt and mask vectors, the server adds them, a key holder decrypts the sum.

The masks protect against a malicious server or client, the encryption protects what is stored and sent on top: a
malicious client can upload a ciphertext whose opening depends on the secret key, and no check on it can tell.
"""

from secagg.protection.encryption import bfv
from secagg.protection.encryption.client import CiphertextUploaded, begin_client
from secagg.protection.encryption.derivations import EncryptedContext, explain, fewest
from secagg.protection.encryption.key_holder import HOLDER_STATES, begin_holder
from secagg.protection.encryption.messages import EncryptedUpload, OpenedSum, PublishedKey, SumRequest
from secagg.protection.encryption.server import AwaitingHolder, check_lengths, open_release
from secagg.protection.interface import OF_CLIENT, Acceptance, Protection, Script, SumRelease
from secagg.protection.messages import Outcome
from secagg.protection.proven_bits import check_libraries


def _check_machine() -> None:
    check_libraries()
    bfv.check_machine()


PROTECTION = Protection(
    name="encrypted",
    fewest=fewest,
    explain=explain,
    client=Script(begin_client, (CiphertextUploaded,), EncryptedUpload, OF_CLIENT),
    begin_server=AwaitingHolder,
    proves="the published sum follows from what the key holder declared, who was shown the sum of the accepted "
    "uploads; that it opened this sum rightly stands on the key holder's word",
    reveals=SumRequest,
    revealed="the key holder was shown the sum",
    server_steps=(PublishedKey, EncryptedUpload, OpenedSum),
    steps=(EncryptedUpload,),
    trust="that the server and the key holder do not collude; that the key holder stays until the sum is opened",
    sum_trust="the server and the key holder",
    visits="one visit, in its own time; another one to fetch the outcome",
    absence="a client that has not uploaded is left out; without the key holder there is no sum",
    context=EncryptedContext.of,
    helper_role="key-holder",
    fewest_helpers=1,
    helper=Script(
        begin_holder,
        HOLDER_STATES,
        OpenedSum,
        "what this key holder was told and what it gave; that it opened the sum rightly stands on its word",
    ),
    details=lambda context: [("ciphertexts", context.parameters.explain())],
    check_machine=_check_machine,
    confirmers=lambda context: (frozenset(context.helpers), len(context.helpers)),
    acceptance=Acceptance(EncryptedUpload, (Outcome,)),
    release=SumRelease(
        (),
        check_lengths,
        open_release,
        "what this party received and sent, each frame signed; that the sum is its clients' stands on the word of key "
        "holder and server",
    ),
    speaks_once=True,
    encrypts=True,
    keeps_noise="the key holder would see through the noise of each client",
)
