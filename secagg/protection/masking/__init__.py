"""The masked protection (Bonawitz et al. 2017): pairwise and self masks, shares against drop-outs, signed survivors."""

from secagg.protection.interface import OF_CLIENT, Acceptance, Protection, Script, SumRelease
from secagg.protection.masking.client import Advertised, Dealt, Endorsed, Opened, Uploaded, advertise
from secagg.protection.masking.derivations import thresholds_of
from secagg.protection.masking.messages import Dealing, Endorsement, KeyAdvertisement, Opening, Survivors
from secagg.protection.masking.quorum import most_dropouts
from secagg.protection.masking.server import AwaitingKeys
from secagg.protection.masking.unmasking import EVIDENCE, check_lengths, open_release
from secagg.protection.messages import Outcome, UploadHeader
from secagg.protection.proven_bits import check_libraries

PROVEN = (
    "the published sum is the sum of the masked vectors that its clients signed, without their masks; what clients "
    "that collude with the server add to it, they fix before it is opened"
)
"""A text on what a client's transcript proves of a sum that it was shown."""

PROTECTION = Protection(
    name="masked",
    fewest=lambda context: thresholds_of(context).survivors,
    explain=lambda context: thresholds_of(context).explain(),
    client=Script(advertise, (Advertised, Dealt, Uploaded, Endorsed, Opened), UploadHeader, OF_CLIENT),
    begin_server=AwaitingKeys,
    proves="the published sum is the sum of the accepted uploads",
    reveals=Opening,
    revealed="the shares of the others were opened",
    server_steps=(KeyAdvertisement, Dealing, UploadHeader, Endorsement, Opening),
    steps=(KeyAdvertisement, Dealing, UploadHeader, Endorsement, Opening),
    trust="that the server and more than c clients do not collude",
    sum_trust="",
    visits="online together for five steps",
    absence="up to D clients may vanish at any step: the sum of the others is opened",
    release=SumRelease(EVIDENCE, check_lengths, open_release, PROVEN),
    most_dropouts=most_dropouts,
    check_machine=check_libraries,
    acceptance=Acceptance(UploadHeader, (Survivors, Outcome)),
    grows_with_clients=True,
    keeps_noise="",
)
