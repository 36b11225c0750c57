"""A made-up report with everything in it that a real one may hold."""

from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri

from threat_models.adversary import adversary_named
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.aggregate import INFORMED
from threat_models.attacks.membership.noise_check import NOISE
from threat_models.attacks.reconstruction.inversion import PSNR, REIDENTIFIED
from threat_models.attacks.reconstruction.unmixing import COSINE, FOUND
from threat_models.estimation.chi_square import SessionNoise
from threat_models.estimation.intervals import Comparisons
from threat_models.findings import Control, Curve, Finding, Measure, Metric, Picture, Series, Verdict
from threat_models.report.content import (
    AttackNote,
    AuditReport,
    Cover,
    DrawnNoise,
    Examination,
    LowerBound,
    Promise,
    ProtectionLevel,
    Subject,
)
from threat_models.session import Provenance

CP = "Clopper-Pearson, 95 %"
CONTROLS = (Control("the same records, unprotected", True, True), Control("random records", False, False))
BROKEN = (Control("the same records, unprotected", True, False), CONTROLS[1])
NOTES = (
    AttackNote("label_counts", "Counts of a client's labels", "Guan et al. 2025"),
    AttackNote("property_inference", "Properties of the data", "Ateniese et al. 2015"),
    AttackNote(
        "unmixing",
        "Unmixing of second moments",
        "Elser, Rankenburg & Thibault 2007",
        "Single records come out of the sum.",
        "Put in many more records.",
    ),
    AttackNote("feature_inversion", "Pictures from features", "Mahendran & Vedaldi 2015; Ulyanov et al. 2018"),
    AttackNote("membership_release", "Membership, from the sum", "Neyman & Pearson 1933; Dong, Roth & Su 2022"),
    AttackNote("membership_head", "Membership, from the head", "Carlini et al. 2022"),
    AttackNote("sizes_and_timing", "Sizes and order of messages", "Dyer et al. 2012"),
    AttackNote("masked_uploads", "Patterns in masked uploads", "Bonawitz et al. 2017"),
    AttackNote("small_cells", "Records alone in a cell", "Sweeney 2002"),
    AttackNote("gradient_inversion", "Records out of updates", "Phong et al. 2018"),
    AttackNote("membership_training", "Membership, from the rounds", "Nasr et al. 2019"),
    AttackNote("membership_prototypes", "Membership, from shared prototypes", "Homer et al. 2008"),
    AttackNote("adapters", "Membership and question, from adapters", "Nasr et al. 2019"),
    AttackNote("membership_generator", "Membership, from the generator", "Chen et al. 2020"),
    AttackNote("reidentification_latents", "Pictures, from sums of latents", "Homer et al. 2008"),
    AttackNote("score_inference", "Class shares, from scores", "Ateniese et al. 2015"),
    AttackNote("changing_cohorts", "Own parts, from changing cohorts", "Dinur & Nissim 2003"),
    AttackNote("linkage", "Parts linked between rounds", "Sweeney 2002"),
    AttackNote("differencing", "Difference of two sums", "Dinur & Nissim 2003"),
    AttackNote("malicious_server", "Probes by a cheating server", "Pasquini, Francati & Ateniese 2022"),
)
SERVER = "curious_server"
HEAD = """
format = "secagg-gate/1"
protections = ["masked"]
records_per_dimension = 10
controls = true
measured = true
"""
"""What every gate file begins with."""
PROVENANCE = Provenance(
    "server.transcript", "verifies", "the sum is the uploads'", "5d" * 32, "the verifier", {"server": "a1" * 32}, False
)


AUC, TPR = (INFORMED.variant(each) for each in (metrics.AUC, metrics.TPR[0.01]))
RARE_TPR = INFORMED.variant(metrics.TPR[0.001])


def measure(metric, value, low, high, **more):
    """A measure with a Clopper-Pearson interval; a text stands for a metric of that id and label."""
    metric = Metric(metric, metric) if isinstance(metric, str) else metric
    return Measure(metric, value, low, high, CP, **more)


def finding(attack, verdict, sentence="The figures say so.", **more):
    """A finding of the curious server with controls that hold."""
    controls = () if verdict is Verdict.NOT_APPLICABLE else CONTROLS
    return Finding(attack, SERVER, verdict, sentence, **({"controls": controls} | more))


def roc(mu=0.27):
    """A ROC with its ceiling, on logarithmic axes."""
    x = np.geomspace(1e-3, 1, 40)
    ceiling, y = ndtr(ndtri(x) + mu), ndtr(ndtri(x) + 0.8 * mu)
    band = 0.6 * np.sqrt(y * (1 - y) / 400)
    series = (
        Series("knowing all other records", tuple(x), tuple(y), tuple(np.clip(y - band, 0, 1)), tuple(y + band)),
        Series("from the release alone", tuple(x), tuple(ndtr(ndtri(x) + 0.05))),
        Series("ceiling: most that ε = 1 allows", tuple(x), tuple(ceiling)),
        Series("chance", tuple(x), tuple(x)),
    )
    return Curve("ROC: members told from others", "false positive rate", "true positive rate", series, logarithmic=True)


def cosines():
    """Cosine of recovered features over the number of records."""
    n = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
    series = (
        Series("from B, N and A", n, (1.0, 1.0, 1.0, 0.999, 0.99, 0.91, 0.84)),
        Series("class means (baseline)", n, (0.9, 0.88, 0.86, 0.85, 0.84, 0.83, 0.83)),
    )
    return Curve("Cosine of recovered and true features", "records of the client", "cosine", series)


def picture(columns=("original", "raw feature", "class mean of 5", "aggregate", "noisy aggregate"), rows=3):
    """Blurred and noisy squares and discs."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    made = []
    for row in range(rows):
        shape = (np.maximum(abs(x), abs(y)) < 0.6, x**2 + y**2 < 0.5, abs(x + y) < 0.4)[row % 3]
        images = []
        for column in range(len(columns)):
            share = column / len(columns)
            colours = np.stack([shape * (1 - share) + share * 0.5, shape * 0.4 + 0.3, 1 - shape * (1 - share)], -1)
            images.append(np.uint8(np.clip(255 * colours + generator.normal(0, 60 * share, (32, 32, 3)), 0, 255)))
        made.append(tuple(images))
    return Picture("Originals and reconstructions", columns, tuple(made))


def good_findings():
    """What a masked session at ε = 1 shows the curious server."""
    return (
        finding("label_counts", Verdict.NOT_APPLICABLE, "It does not see contributions."),
        finding("property_inference", Verdict.SUCCEEDS, "Class shares of the cohort are known to 2 %."),
        finding(
            "unmixing",
            Verdict.FAILS,
            "Recovered features are no nearer to the true ones than class means.",
            measures=(measure(COSINE, 0.62, 0.60, 0.64, of="all", baseline=0.83),),
            curves=(cosines(),),
        ),
        finding(
            "feature_inversion",
            Verdict.FAILS,
            "No picture is nearer to its original than the nearest public one.",
            measures=(
                measure(REIDENTIFIED, 0.01, 0.0, 0.05, of="class mean of sum of all", baseline=0.01),
                measure(PSNR, 9.1, 8.8, 9.4, of="class mean of sum of all"),
            ),
            pictures=(picture(),),
        ),
        finding(
            "membership_release",
            Verdict.SUCCEEDS,
            "Members are told from others with an area of 0.57 under the curve, which the claim allows.",
            measures=(
                measure(TPR, 0.019, 0.017, 0.022, baseline=0.01, ceiling=0.0198),
                Measure(
                    RARE_TPR,
                    np.nan,
                    np.nan,
                    np.nan,
                    CP,
                    baseline=0.001,
                    ceiling=0.0024,
                ),
                measure(AUC, 0.57, 0.565, 0.576, baseline=0.5, ceiling=0.575),
                Measure(NOISE, 1.01, 0.97, 1.05, "chi-square, 95 %", baseline=1.0),
            ),
            curves=(roc(),),
        ),
        finding(
            "membership_head",
            Verdict.FAILS,
            "The head tells members from others no better than chance.",
            measures=(measure(AUC, 0.502, 0.49, 0.515, baseline=0.5, ceiling=0.575),),
        ),
        finding("sizes_and_timing", Verdict.FAILS, "Sizes depend on the plan alone."),
        finding("small_cells", Verdict.FAILS, "No record is alone in a cell of the sum of all: the smallest holds 9."),
        finding("gradient_inversion", Verdict.NOT_APPLICABLE, "Its sums hold no updates of a model."),
        finding("membership_training", Verdict.NOT_APPLICABLE, "No rounds move a model."),
        finding("membership_prototypes", Verdict.NOT_APPLICABLE, "Its sums hold no prototypes of projections."),
        finding("adapters", Verdict.NOT_APPLICABLE, "No rounds move an adapter."),
        finding("membership_generator", Verdict.NOT_APPLICABLE, "No rounds move a generator of embeddings."),
        finding("reidentification_latents", Verdict.NOT_APPLICABLE, "No latents are summed."),
        finding("score_inference", Verdict.NOT_APPLICABLE, "No scores are summed."),
        finding("changing_cohorts", Verdict.NOT_APPLICABLE, "It sees no two rounds' sums of the same parts."),
        finding("linkage", Verdict.NOT_APPLICABLE, "It does not see contributions."),
        finding("masked_uploads", Verdict.FAILS, "They look uniform."),
    )


def exposed_findings():
    """What an exact sum over few records shows the curious server."""
    unmixed = finding(
        "unmixing",
        Verdict.SUCCEEDS,
        "All 64 records were recovered from the second moment.",
        measures=(
            measure(COSINE, 0.9991, 0.9989, 0.9993, of="all", baseline=0.83),
            measure(FOUND, 1.0, 0.944, 1.0, baseline=0.5),
        ),
        curves=(cosines(),),
    )
    member = finding(
        "membership_release",
        Verdict.SUCCEEDS,
        "Members are told without error.",
        measures=(measure(AUC, 1.0, 0.99, 1.0, baseline=0.5),),
    )
    others = {"unmixing": unmixed, "membership_release": member, "membership_head": member}
    return tuple(
        replace(others.get(one.attack, one), attack=one.attack) if one.attack in others else one
        for one in good_findings()
    )


COVER = Cover(
    "heart study",
    "cardiac risk",
    ("ab" * 32,),
    ("7a" * 32,),
    ("cleveland", "hungarian", "switzerland", "va"),
    5,
    "an auditor",
    "2026-03-01",
)


SESSION_NOISE = SessionNoise(
    1.02, 0.95, 1.1, 2_730, "measured with the records of all members", "This session's noise is as planned."
)


def report(**changes):
    """A masked session at ε = 1 that the default gate passes, with `changes`."""
    server = Examination(
        adversary_named(SERVER), ("messages", "uploads", "release", "head"), ("contributions",), good_findings()
    )
    promise = Promise(
        sentence="What is opened hardly tells whether any one record was among the data or not: this changes the "
        "chance of any outcome by a factor of at most e^1 (at most 2.8), but for a chance of 1e-05 "
        "(epsilon 1, add-remove, record level).",
        claimed=1.0,
        recomputed=0.9998,
        recomputed_by="Balle & Wang 2018, equation 6, from the plan's noise and sensitivity",
        delta=1e-5,
        unit="record",
        adjacency="add-remove",
        measured=LowerBound(
            0.87,
            CP,
            "Of 40,000 re-releases: epsilon is at least 0.87 at delta 1e-05; 1 is claimed.",
            "Re-releases with noise ≥ 14 % too small would have shown it with probability 95 %.",
            curve=roc(),
        ),
        drawn=DrawnNoise(
            "The noise that simulated parties drew is as planned.",
            "Noise too small by 2 % would have been found with probability 95 %.",
            (("second moment, diagonal", 1.02, 2_000),),
        ),
        session_noise=SESSION_NOISE,
    )
    made = AuditReport(
        title="Audit of the session “heart 2026-03” of five hospitals",
        subject=Subject(
            "masked",
            50_000,
            512,
            (("server.transcript", "3f" * 32),),
            {"clients": "5", "method": "fedcgs"},
            provenance=(PROVENANCE,),
        ),
        promise=promise,
        attacks=NOTES,
        examinations=(server,),
        power=("With 1,000 others a false positive rate of 1 % can be told, one of 0.1 % cannot.",),
        limits=("Attacks that nobody has thought of yet.", "What a client did before it computed its statistics."),
        environment={"python": "3.11.9", "numpy": "2.1.3", "secagg": "0.1.0"},
        seed=0,
        comparisons=Comparisons(23, 0.002),
        levels=(
            ProtectionLevel("no protection", tuple(replace(f, adversary="no_protection") for f in exposed_findings())),
            ProtectionLevel("masked, ε = ∞", good_findings()),
            ProtectionLevel("masked, ε = 1", good_findings()),
        ),
    )
    return replace(made, **changes)


def with_findings(made, *findings):
    """The report with the curious server's findings of these attacks in place of its own."""
    mine = {one.attack: one for one in findings}
    server = made.examinations[0]
    kept = tuple(mine.pop(one.attack, one) for one in server.findings)
    return replace(made, examinations=(replace(server, findings=(*kept, *mine.values())), *made.examinations[1:]))


def with_control(made):
    """The report with the adversary that nothing keeps out beside the others."""
    found = tuple(replace(one, adversary="no_protection", controls=CONTROLS) for one in exposed_findings())
    control = Examination(adversary_named("no_protection"), (), (), found)
    return replace(made, examinations=(control, *made.examinations))


def exact(made, records=50_000):
    """The report of a sum without noise."""
    promise = replace(
        made.promise,
        sentence="An exact sum: nothing is promised about a record.",
        claimed=np.inf,
        recomputed=np.inf,
        measured=None,
        drawn=None,
        session_noise=None,
    )
    return replace(made, promise=promise, subject=replace(made.subject, records=records))
