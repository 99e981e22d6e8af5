"""What the evidence says of the setting of a run that a card states."""

from __future__ import annotations

from dataclasses import dataclass

from generator.cards.model import Param
from generator.evidence.evidence import Evidence
from generator.evidence.quantities import QuantityError, read
from generator.names import suggest
from generator.problems import Problem
from runnable_demos.lab.metrics import Parameter, Record


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter of a recorded run on the CPU; ``stale`` where the demo has changed since."""

    record: Record
    parameter: Parameter
    stale: bool

    @property
    def value(self) -> int | float | None:
        """Its number; ``None`` where it is a name or a truth value."""
        found = self.parameter.value
        return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def find(demo: str, name: str, evidence: Evidence) -> Setting | None:
    """The parameter ``name`` of the demo's run on the CPU, if there is one."""
    record = evidence.records.get((demo, "cpu"))
    if record is None:
        return None
    stale = (demo, "cpu") in evidence.stale
    found = (each for each in record.parameters if each.name == name)
    return next((Setting(record, each, stale) for each in found), None)


def judge(link: Param, evidence: Evidence) -> Setting | Problem:
    """The setting that ``link`` states, or why it cannot stand."""
    setting = find(link.demo, link.name, evidence)
    if setting is None:
        message, hint = unknown(link.demo, link.name, evidence)
        return Problem(link.place, "param-name", message, hint)
    if setting.value is None:
        message = f"`{link.demo}/{link.name}` is {setting.parameter.value!r}, which is no number"
        return Problem(link.place, "param-text", message, "Say it in words, without a link.")
    try:
        printed = read(link.text)
    except QuantityError as error:
        message = f"“{link.text}” is no number to compare: {error}"
        hint = "The link holds one number; what is counted stays outside."
        return Problem(link.place, "param-text", message, hint)
    if printed.unit:
        message = f"“{link.text}” has a unit, and a parameter is a plain number"
        return Problem(link.place, "param-unit", message, "Write the unit behind the link.")
    if not printed.equals(setting.value):
        message = f"“{link.text}” is printed, but the run was set to {setting.value}"
        hint = "Let `proofdeck refresh` rewrite the number."
        return Problem(link.place, "param-number", message, hint)
    return setting


def unknown(demo: str, name: str, evidence: Evidence) -> tuple[str, str]:
    """Why there is no such parameter, and what to do."""
    record = evidence.records.get((demo, "cpu"))
    if record is None:
        near = suggest(demo, evidence.demos)
        hint = f"Record it: `proofdeck demo run {demo} --record`."
        message = f"there is no evidence of a demo `{demo}` on the CPU"
        return message, near if near.startswith("Did you mean") else hint
    names = [parameter.name for parameter in record.parameters]
    return f"the demo `{demo}` has no parameter `{name}`", suggest(name, names)
