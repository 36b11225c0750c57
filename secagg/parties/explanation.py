"""A plan in plain words, for the people who decide whether their data goes into it."""

from __future__ import annotations

from secagg.parties.setup import SessionSetup


def explain(setup: SessionSetup) -> list[tuple[str, str]]:
    """What the plan means: a name and a sentence each."""
    plan, layout = setup.plan, setup.layout
    blocks = ", ".join(f"{block.name} {'×'.join(map(str, block.shape))}" for block in layout.blocks)
    shape = "×".join(map(str, plan.input_shape))
    expansion = f", then {plan.expand} random features" if plan.expand else ""
    length = f"joint length ≤ {plan.radius:g}, on a grid of {plan.levels} steps"
    return [
        ("purpose", plan.purpose or "-"),
        ("method", f"{plan.method} {plan.parameters}"),
        ("records", f"{plan.data_kind} of shape {shape}, at most {plan.max_records} per client"),
        ("classes", f"{len(plan.classes)}: {', '.join(plan.classes[:12])}{', …' if len(plan.classes) > 12 else ''}"),
        ("features", f"{plan.backbone}{expansion}: {plan.dimension} numbers of {length}"),
        ("what is summed", f"{blocks}: {layout.length} integers"),
        ("what leaves a client", f"{setup.context.packed_bytes} bytes whatever its records, and keys and shares"),
        ("ring", setup.capacity.proof()),
        ("protection", plan.protection),
        ("who must agree", setup.protection.explain(setup.context)),
        ("noise", "none: the exact sum is opened (ε = ∞)"),
        ("who gets the head", plan.result),
        ("waiting", f"{plan.join_seconds} s for members to join, {plan.step_seconds} s at every later step"),
        ("session", plan.session.hex()),
        ("plan SHA-256", plan.digest.hex()),
    ]
