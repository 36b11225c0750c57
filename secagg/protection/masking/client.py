"""The client of the masked protocol: one frozen type for each step, so that the wrong order does not type-check.

    Advertised → Dealt → Ready → Uploaded → Endorsed → Opened

Bonawitz et al. 2017, Figure 4, rounds 0 to 4. Every refusal names its culprit: the server for what it
chose or relayed wrongly, a dealer for shares that are not what it signed.
"""

from __future__ import annotations
