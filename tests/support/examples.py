"""How many examples a property test tries: fewer in `make quick`, more in `make examples`."""

from hypothesis import Phase, settings

_USUAL = settings.get_profile("default").max_examples


def examples(usual: int, *, shrink: bool = True) -> settings:
    """Return settings whose number of examples follows the profile: `usual` where other properties try 100."""
    phases = tuple(Phase) if shrink else (Phase.explicit, Phase.generate)
    return settings(max_examples=max(1, usual * settings().max_examples // _USUAL), phases=phases)
