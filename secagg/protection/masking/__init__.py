"""The masked protection (Bonawitz et al. 2017): pairwise and self masks, shares against drop-outs, signed survivors."""

from secagg.protection.interface import OF_CLIENT, Acceptance, Protection, Script
from secagg.protection.masking.client import Advertised, Dealt, Endorsed, Opened, Uploaded, advertise
from secagg.protection.masking.derivations import thresholds_of
from secagg.protection.masking.messages import Dealing, Endorsement, KeyAdvertisement, Opening, Survivors
from secagg.protection.masking.quorum import most_dropouts
from secagg.protection.masking.server import AwaitingKeys
from secagg.protection.messages import Outcome, UploadHeader

PROTECTION = Protection(
    name="masked",
    fewest=lambda context: thresholds_of(context).survivors,
    explain=lambda context: thresholds_of(context).explain(),
    client=Script(advertise, (Advertised, Dealt, Uploaded, Endorsed, Opened), UploadHeader, OF_CLIENT),
    begin_server=AwaitingKeys,
    proves="the published sum is the sum of the accepted uploads",
    reveals=Opening,
    revealed="the shares of the others were opened",
    steps=(KeyAdvertisement, Dealing, UploadHeader, Endorsement, Opening),
    trust="that the server and more than c clients do not collude",
    sum_trust="the server",
    visits="online together for five steps",
    absence="up to D clients may vanish at any step: the sum of the others is opened",
    most_dropouts=most_dropouts,
    acceptance=Acceptance(UploadHeader, (Survivors, Outcome)),
    grows_with_clients=True,
)
